package leaks

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

// bound binds a loop device called name over an image in dir, as the array lays
// its volumes out, until the test ends.
func bound(t *testing.T, dir, name string) (device, image string) {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	image = filepath.Join(dir, "volumes", "one", "image")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o700))
	f, err := os.Create(image)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<20))
	return attach(t, f, loopdev.Config{Name: name}), image
}

// attach binds a loop device over a file until the test ends.
func attach(t *testing.T, f *os.File, c loopdev.Config) (device string) {
	t.Helper()
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	d, err := pool.Attach(t.Context(), f, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Detach(context.WithoutCancel(t.Context()), d)
		require.NoError(t, err)
	})
	return d.Path()
}

// stateDir is a directory with the lock file of an emulator.
func stateDir(t *testing.T) (dir string, lock *os.File) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	lock, err = os.Create(filepath.Join(dir, lockName))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lock.Close()) })
	return dir, lock
}

// find returns the leaks that concern a device or path.
func find(t *testing.T, name string) []Leak {
	t.Helper()
	all, err := Find(t.Context())
	require.NoError(t, err)
	var mine []Leak
	for _, l := range all {
		if l.Name == name || strings.HasPrefix(l.Name, name+"/") {
			mine = append(mine, l)
		}
	}
	return mine
}

func TestDeviceOfAStateDirectoryThatNobodyHasOpenIsFound(t *testing.T) {
	t.Parallel()
	dir, _ := stateDir(t)
	device, image := bound(t, dir, "csiemu-0123456789")
	require.Equal(t, []Leak{{
		Kind: "loop device", Name: device, Of: image, StateDir: dir,
		Remedy: "csiemu serve --state-dir " + dir + " takes it over, or losetup -d " + device,
	}}, find(t, device))
}

func TestDeviceOfARunningEmulatorIsNoLeak(t *testing.T) {
	t.Parallel()
	dir, lock := stateDir(t)
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	device, _ := bound(t, dir, "csiemu-0123456789")
	require.Empty(t, find(t, device))
}

func TestReadOnlyDeviceOverAnotherGoesWithIt(t *testing.T) {
	t.Parallel()
	dir, lock := stateDir(t)
	device, _ := bound(t, dir, "csiemu-0123456789")
	f, err := os.Open(device)
	require.NoError(t, err)
	defer f.Close()
	reader := attach(t, f, loopdev.Config{Name: "csiemu-0123456789-ro-01234567", ReadOnly: true})
	require.Equal(t, []Leak{{
		Kind: "loop device", Name: reader, Of: device, StateDir: dir,
		Remedy: "csiemu serve --state-dir " + dir + " takes it over, or losetup -d " + reader,
	}}, find(t, reader))

	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	require.Empty(t, find(t, reader))
	require.Empty(t, find(t, device))
}

func TestDeviceWithoutStateDirectoryIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	device, image := bound(t, dir, "csiemu-0123456789")
	require.NoError(t, os.RemoveAll(filepath.Dir(image)))
	require.Equal(t, []Leak{{
		Kind: "loop device", Name: device, Of: image + " (deleted)", Remedy: "losetup -d " + device,
	}}, find(t, device))
}

func TestDeviceOfAnotherProgramIsNoLeak(t *testing.T) {
	t.Parallel()
	device, image := bound(t, t.TempDir(), "/var/lib/other/image")
	require.Empty(t, find(t, device))
	require.Empty(t, find(t, image))
}

func TestMountOfAVolumeInMemoryIsFound(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Tmpfs, kernel.FSMount)
	dir, lock := stateDir(t)
	point := filepath.Join(dir, "volumes", "one", "data")
	require.NoError(t, os.MkdirAll(point, 0o700))
	require.NoError(t, mount.Mount(t.Context(), "csiemu:vol-one", point, "tmpfs", mount.Options{}))
	t.Cleanup(func() { require.NoError(t, mount.Unmount(point)) })

	require.Equal(t, []Leak{{
		Kind: "mount", Name: point, Of: "csiemu:vol-one", StateDir: dir,
		Remedy: "csiemu serve --state-dir " + dir + " takes it over, or umount " + point,
	}}, find(t, dir))

	under, err := Under(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []Leak{{Kind: "mount", Name: point, Of: "csiemu:vol-one", Remedy: "umount " + point}}, under)

	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	require.Empty(t, find(t, dir))
}

func TestUnderFindsDevicesWhoeverMadeThem(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	device, image := bound(t, dir, "anything")
	under, err := Under(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []Leak{{Kind: "loop device", Name: device, Of: image, Remedy: "losetup -d " + device}}, under)
}
