//go:build linux

package loopdev_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// An empty directory stands for the /dev of a container.
func TestMissingNodesAreMadeInNodeDir(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Mknod)
	options := loopdev.Options{Dev: t.TempDir(), NodeDir: t.TempDir()}
	pool := newPool(t, options)
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	require.Equal(t, options.NodeDir, filepath.Dir(d.Path()))
	file, err := os.Open(d.Path())
	require.NoError(t, err)
	_, err = file.Read(make([]byte, 512))
	require.NoError(t, err)
	require.NoError(t, file.Close())

	// Another container, which has not seen the device yet.
	elsewhere := loopdev.Options{Dev: t.TempDir(), NodeDir: t.TempDir()}
	status, err := loopdev.StatusOf(d.Index, elsewhere)
	require.NoError(t, err)
	require.Equal(t, d.Name, status.Name)
	entries, err := os.ReadDir(elsewhere.NodeDir)
	require.NoError(t, err)
	require.Empty(t, entries, "a look left a node behind")

	found, err := loopdev.Find(context.Background(), d.Name, -1, elsewhere)
	require.NoError(t, err)
	require.Equal(t, elsewhere.NodeDir, filepath.Dir(found.Path()))
	require.NoError(t, found.Refresh())

	statuses, err := pool.Scan(context.Background())
	require.NoError(t, err)
	require.NotEmpty(t, statuses)
}

func TestMissingNodeWithoutNodeDirIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	dev := t.TempDir()
	_, err := loopdev.NewPool(loopdev.Options{Dev: dev})
	var unsupported *kernel.NotSupportedError
	require.ErrorAs(t, err, &unsupported)
	require.Equal(t, kernel.Loop, unsupported.Feature)

	require.NoError(t, os.Symlink("/dev/loop-control", filepath.Join(dev, "loop-control")))
	pool := newPool(t, loopdev.Options{Dev: dev})
	_, err = pool.Attach(context.Background(), newBacking(t, t.TempDir()), loopdev.Config{Name: uniqueName()})
	require.ErrorAs(t, err, &unsupported)
	require.Equal(t, kernel.Mknod, unsupported.Feature)

	// Not knowing is not the same as not being there.
	attach(t, newPool(t, loopdev.Options{}), newBacking(t, t.TempDir()), loopdev.Config{})
	_, err = loopdev.Find(context.Background(), uniqueName(), -1, loopdev.Options{Dev: dev})
	require.ErrorIs(t, err, kernel.ErrNotSupported)
	require.NotErrorIs(t, err, loopdev.ErrNotBound)
}

// Opening the node of a device that does not exist makes the device.
func TestLookingForADeviceDoesNotMakeIt(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Mknod)
	absent := absentIndex(t)
	static := t.TempDir()
	require.NoError(t, unix.Mknod(filepath.Join(static, fmt.Sprintf("loop%d", absent)), unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(absent)))))
	for name, options := range map[string]loopdev.Options{
		"with a node in a static /dev": {Dev: static, NodeDir: t.TempDir()},
		"with a directory for nodes":   {Dev: t.TempDir(), NodeDir: t.TempDir()},
		"with neither":                 {},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loopdev.StatusOf(absent, options)
			require.ErrorIs(t, err, loopdev.ErrNotBound)
			_, err = newPool(t, options).Adopt(absent, uniqueName())
			require.ErrorIs(t, err, loopdev.ErrNotBound)
			requireAbsent(t, absent)
		})
	}
}
