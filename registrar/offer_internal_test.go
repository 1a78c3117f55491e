package registrar

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAServerThatEndsByItselfIsReplaced(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := Config{PluginRegistrationPath: dir, KubeletRegistrationPath: "/csi.sock"}.withDefaults()
	k := &kubelet{c: c, report: newReporter(c), wake: time.NewTimer(time.Hour)}
	defer k.wake.Stop()
	k.id.Name = "a.example"
	require.NoError(t, k.put(t.Context()))
	first := k.offer
	require.NoError(t, k.look(t.Context()))
	require.Same(t, first, k.offer)

	first.server.Stop() // as if it could not accept any more
	<-first.served
	require.False(t, answers(t.Context(), k.path()))
	k.last = time.Time{} // long ago
	require.NoError(t, k.look(t.Context()))
	require.NotSame(t, first, k.offer)
	require.True(t, answers(t.Context(), k.path()))
	require.Contains(t, k.report.now().LastError, "the server behind the registration socket ended")
	require.NoError(t, k.withdraw())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// What is said once while it stays the same has to stay the same.
func TestADirectoryThatCannotBeWrittenIsTheSameErrorEachTime(t *testing.T) {
	t.Parallel()
	_, first := put(t.Context(), "/none/a-reg.sock", nil)
	_, second := put(t.Context(), "/none/a-reg.sock", nil)
	require.EqualError(t, first, "offer registration socket /none/a-reg.sock: make a directory in /none: no such file or directory")
	require.Equal(t, first.Error(), second.Error())
}
