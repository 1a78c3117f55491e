package rpc_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// socketDir is short enough for sun_path, whatever the test is called.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rpc") //nolint:usetesting // t.TempDir has the test's name in it, too long for sun_path
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func unixEndpoint(path string) rpc.Endpoint { return rpc.Endpoint{Network: "unix", Address: path} }

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := rpc.Listen(t.Context(), unixEndpoint(path))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// stale leaves a socket behind as a killed server does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
}

func requireOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	require.ElementsMatch(t, names, found)
}

func requireAnswers(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestListenCreatesTheSocketAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "csi.sock")
	l := listen(t, path)
	requireAnswers(t, path)
	requireOnly(t, dir, "csi.sock")
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "closing twice is harmless")
	requireOnly(t, dir)
}

func TestListenReplacesAStaleSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "csi.sock")
	stale(t, path)
	listen(t, path)
	requireAnswers(t, path)
}

func TestListenRefusesALiveSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "csi.sock")
	listen(t, path)
	_, err := rpc.Listen(t.Context(), unixEndpoint(path))
	require.ErrorIs(t, err, rpc.ErrInUse)
	require.ErrorContains(t, err, "another process answers there")
	requireAnswers(t, path)
}

func TestListenLeavesOtherThingsAlone(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	file, sub, link := filepath.Join(dir, "file"), filepath.Join(dir, "dir"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	require.NoError(t, os.Mkdir(sub, 0o700))
	stale(t, filepath.Join(dir, "old.sock"))
	require.NoError(t, os.Symlink("old.sock", link))
	for path, what := range map[string]string{file: "file", sub: "directory", link: "symbolic link"} {
		_, err := rpc.Listen(t.Context(), unixEndpoint(path))
		require.ErrorContains(t, err, "a "+what+" is in the way")
	}
	requireOnly(t, dir, "file", "dir", "link", "old.sock")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

func TestListenNeedsTheDirectory(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	_, err := rpc.Listen(t.Context(), unixEndpoint(filepath.Join(dir, "no", "csi.sock")))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "which must exist")
	requireOnly(t, dir)
}

func TestListenNamesTheLimitOfAPath(t *testing.T) {
	t.Parallel()
	_, err := rpc.Listen(t.Context(), unixEndpoint("/"+strings.Repeat("x", 200)))
	require.ErrorContains(t, err, "the path has 201 bytes")
	require.ErrorContains(t, err, "sun_path")
}

func TestCloseLeavesASocketThatReplacedOurs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "csi.sock")
	first := listen(t, path)
	require.NoError(t, os.Remove(path))
	listen(t, path)
	require.NoError(t, first.Close())
	requireAnswers(t, path)
}

func TestCloseIsContentWhenTheSocketIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "csi.sock")
	l := listen(t, path)
	require.NoError(t, os.Remove(path))
	require.NoError(t, l.Close())
}

// Of many servers that find one stale socket, one gets the path, and stays
// reachable: none removes what another has just made.
func TestOneOfManyListenersWins(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "csi.sock")
	stale(t, path)
	var group sync.WaitGroup
	won := make(chan net.Listener, 16)
	for range cap(won) {
		group.Go(func() {
			l, err := rpc.Listen(context.WithoutCancel(t.Context()), unixEndpoint(path))
			if err == nil {
				won <- l
			} else {
				assert.ErrorIs(t, err, rpc.ErrInUse)
			}
		})
	}
	group.Wait()
	require.Len(t, won, 1)
	requireAnswers(t, path)
	require.NoError(t, (<-won).Close())
}

func TestListenOnTCP(t *testing.T) {
	t.Parallel()
	l, err := rpc.Listen(t.Context(), rpc.Endpoint{Network: "tcp", Address: "127.0.0.1:0"})
	require.NoError(t, err)
	defer l.Close()
	_, err = rpc.Listen(t.Context(), rpc.Endpoint{Network: "tcp", Address: l.Addr().String()})
	require.ErrorIs(t, err, rpc.ErrInUse)
}
