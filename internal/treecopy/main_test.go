//go:build linux

package treecopy_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func need(tb testing.TB) {
	tb.Helper()
	testenv.Need(tb, kernel.Root, kernel.Tmpfs, kernel.FSMount, kernel.MountSetattr)
}

// tmpfs mounts one with the given options. That it can be unmounted at the end
// shows that nothing of it is held.
func tmpfs(tb testing.TB, options ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	mountTmpfs(tb, dir, options...)
	return dir
}

func mountTmpfs(tb testing.TB, dir string, options ...string) {
	tb.Helper()
	o, err := mount.ParseOptions(options)
	require.NoError(tb, err)
	require.NoError(tb, mount.Mount(tb.Context(), "tmpfs", dir, "tmpfs", o))
	tb.Cleanup(func() { require.NoError(tb, mount.Unmount(dir)) })
}

func makeDir(tb testing.TB, elements ...string) string {
	tb.Helper()
	dir := filepath.Join(elements...)
	require.NoError(tb, os.MkdirAll(dir, 0o755))
	return dir
}

func write(tb testing.TB, name, text string) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(name, []byte(text), 0o644))
}

// watched is a context that calls back each time its error is asked for, which
// is once an entry at least.
type watched struct {
	context.Context
	look func() error
}

func (w watched) Err() error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Context.Err()
}
