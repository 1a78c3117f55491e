package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// TestCloseLeavesNothing looks for what a cluster makes outside of its directory.
// It holds the cluster's number while it looks, so that no other cluster of this
// machine has it.
func TestCloseLeavesNothing(t *testing.T) {
	testenv.Need(t, kernel.Root)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	before := hostDirs(t)
	c, err := New(ctx, t.TempDir())
	require.NoError(t, err)
	number := c.claim.number
	require.Contains(t, links(t), network(number).bridge())
	require.Contains(t, links(t), network(number).link(1))
	require.NoError(t, c.Close())

	again, err := take(number)
	require.NoError(t, err)
	if again != nil {
		require.NotContains(t, links(t), network(number).bridge())
		require.NotContains(t, links(t), network(number).link(1))
		cgroups, err := filepath.Glob(filepath.Join(hierarchies, "*", cgroup(number)))
		require.NoError(t, err)
		require.Empty(t, cgroups)
		require.NoError(t, again.release())
	}
	require.NoDirExists(t, c.dir)
	require.Equal(t, before, hostDirs(t), "the directories in which a node has its own")
}

// links are the names of the links of this machine.
func links(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names
}

// hostDirs are the entries of the host's directories where the programs of a node
// would write.
func hostDirs(t *testing.T) (all []string) {
	t.Helper()
	for _, dir := range []string{"/var/lib", "/opt", "/usr/libexec", "/etc"} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}
