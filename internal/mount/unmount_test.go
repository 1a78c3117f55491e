//go:build linux

package mount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

// Both ways of taking a mount away, for what is the same for both.
var ways = map[string]func(string) error{"Unmount": mount.Unmount, "Detach": mount.Detach}

func TestUnmountWhereNothingIs(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	dirIn(t, dir, "dir")
	fileIn(t, dir, "file", "content")
	require.NoError(t, os.Symlink("dir", filepath.Join(dir, "link")))
	for name, target := range map[string]string{
		"a directory with nothing mounted": "dir",
		"a file with nothing mounted":      "file",
		"a path that does not exist":       "none",
		"a parent that does not exist":     "none/below/target",
		"a parent that is a file":          "file/target",
		"a symbolic link as last element":  "link",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, unmount := range ways {
				require.NoError(t, unmount(filepath.Join(dir, target)), way)
			}
		})
	}
}

func TestUnmountTakesAMountAway(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	for way, unmount := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			target := dirIn(t, workDir(t), "target with a space")
			require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
			require.NoError(t, unmount(target))
			info, err := mount.Stat(target)
			require.NoError(t, err)
			require.False(t, info.IsRoot)
			require.NoError(t, unmount(target), "a second time")
		})
	}
}

func TestUnmountOfABusyMount(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
	file, err := os.Create(filepath.Join(target, "file"))
	require.NoError(t, err)
	defer file.Close()

	err = mount.Unmount(target)
	require.ErrorIs(t, err, mount.ErrBusy)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, target)

	require.NoError(t, file.Close())
	require.NoError(t, mount.Unmount(target))
	requireNothingMounted(t, target)
}

func TestUnmountWithAMountBelow(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
	inner := dirIn(t, target, "inner")
	require.NoError(t, mount.Mount(t.Context(), "test", inner, "tmpfs", mount.Options{}))

	require.ErrorIs(t, mount.Unmount(target), mount.ErrBusy)
	entries, err := mount.ListUnder(target)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.NoError(t, mount.Unmount(inner))
	require.NoError(t, mount.Unmount(target))
}

func TestDetachOfABusyMount(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
	require.NoError(t, mount.Mount(t.Context(), "test", dirIn(t, target, "inner"), "tmpfs", mount.Options{}))
	file, err := os.Create(filepath.Join(target, "file"))
	require.NoError(t, err)
	defer file.Close()

	require.NoError(t, mount.Detach(target))
	requireNothingMounted(t, target)
	_, err = file.WriteString("who has a file open keeps it")
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(target, "file"))
}

func TestUnmountOfADeadMount(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	for way, unmount := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			target := dirIn(t, workDir(t), "target")
			_, device := mountFUSE(t, target)
			require.NoError(t, device.Close(), "nobody serves it any more")
			info, err := mount.Stat(target)
			require.NoError(t, err)
			require.True(t, info.Dead)

			require.NoError(t, unmount(target))
			info, err = mount.Stat(target)
			require.NoError(t, err)
			require.False(t, info.Dead)
			require.False(t, info.IsRoot)
		})
	}
}

func TestUnmountOfABusyDeadMount(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	_, device := mountFUSE(t, target)
	dirHandle, err := os.OpenFile(target, oPath, 0)
	require.NoError(t, err)
	defer dirHandle.Close()
	require.NoError(t, device.Close())

	require.ErrorIs(t, mount.Unmount(target), mount.ErrBusy)
	require.NoError(t, mount.Detach(target))
	requireNothingMounted(t, dir)
}

// While other goroutines start processes, their children have copies of all
// descriptors for a moment; unmounting must not fail for that.
func TestUnmountWhileProcessesStart(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	stop := startProcesses(t)
	defer stop()
	for range fewer(200) {
		require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
		require.NoError(t, mount.Unmount(target))
	}
}
