//go:build linux

package mount_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// need skips a test on a machine that lacks what all mounts need, or one of the
// features.
func need(tb testing.TB, features ...kernel.Feature) {
	tb.Helper()
	testenv.Need(tb, kernel.Root, kernel.OpenAt2, kernel.FSMount, kernel.MountSetattr, kernel.StatxMountID)
	testenv.Need(tb, features...)
}

// workDir is a directory of the test's own. What a failing test leaves mounted
// in it is taken away, so that the machine stays clean; a passing test must
// leave nothing.
func workDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	tb.Cleanup(func() {
		left, err := mount.ListUnder(dir)
		if err != nil {
			tb.Error(err)
		}
		for _, e := range slices.Backward(left) {
			if !tb.Failed() {
				tb.Errorf("%s is still mounted on %s", e.FSType, e.MountPoint)
			}
			if err := mount.Detach(e.MountPoint); err != nil {
				tb.Error(err)
			}
		}
	})
	return dir
}

// dirIn makes a directory in dir.
func dirIn(tb testing.TB, dir, name string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	require.NoError(tb, os.MkdirAll(path, 0o755))
	return path
}

// fileIn makes a file in dir.
func fileIn(tb testing.TB, dir, name, content string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	require.NoError(tb, os.WriteFile(path, []byte(content), 0o644))
	return path
}

// tmpfsOn mounts a tmpfs until the test ends.
func tmpfsOn(tb testing.TB, target string, flags ...string) string {
	tb.Helper()
	require.NoError(tb, mount.Mount(tb.Context(), "test", target, "tmpfs", options(tb, flags...)))
	tb.Cleanup(func() { require.NoError(tb, mount.Unmount(target)) })
	return target
}

func options(tb testing.TB, flags ...string) mount.Options {
	tb.Helper()
	o, err := mount.ParseOptions(flags)
	require.NoError(tb, err)
	return o
}

// entryOf returns the one mount on target.
func entryOf(tb testing.TB, target string) mount.Entry {
	tb.Helper()
	entries, err := mount.ListUnder(target)
	require.NoError(tb, err)
	require.Len(tb, entries, 1)
	require.Equal(tb, target, entries[0].MountPoint)
	return entries[0]
}

func requireNothingMounted(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := mount.ListUnder(dir)
	require.NoError(tb, err)
	require.Empty(tb, entries)
}

// fewer is how often a race is tried with -short.
func fewer(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// oPath opens a path without asking its file system.
const oPath = unix.O_PATH

// startProcesses starts processes, one after the other, until stop is called.
func startProcesses(tb testing.TB) (stop func()) {
	tb.Helper()
	program, err := exec.LookPath("true")
	require.NoError(tb, err)
	quit, done := make(chan struct{}), make(chan int)
	go func() {
		started := 0
		defer func() { done <- started }()
		for {
			select {
			case <-quit:
				return
			default:
			}
			if exec.Command(program).Run() == nil {
				started++
			}
		}
	}()
	return func() {
		close(quit)
		require.Positive(tb, <-done)
	}
}
