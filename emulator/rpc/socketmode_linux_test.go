package rpc

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The mode is looked at before Listen itself could change it: the socket has it
// from its first moment on.
func TestSocketIsBornForItsOwner(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rpc") //nolint:usetesting // t.TempDir has the test's name in it, too long for sun_path
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	bound := filepath.Join(dir, "bound")
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(t.Context(), "unix", bound)
	require.NoError(t, err)
	defer l.Close()
	requireOwnerOnly(t, bound)

	path := filepath.Join(dir, "listened")
	listener, err := Listen(context.WithoutCancel(t.Context()), Endpoint{Network: "unix", Address: path})
	require.NoError(t, err)
	requireOwnerOnly(t, path)
	require.NoError(t, listener.Close())
}

func requireOwnerOnly(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(socketMode), info.Mode().Perm())
}
