//go:build linux

package loopdev_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestDetachWhileOpenFencesAndLetsTheLastUserRelease(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]loopdev.Config{"plain": {}, "autoclear": {Autoclear: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, loopdev.Options{})
			backing := newBacking(t, t.TempDir())
			d := attach(t, pool, backing, config)
			device := openDevice(t, d, os.O_RDWR)
			_, err := device.WriteAt([]byte("before"), 4096)
			require.NoError(t, err)

			for range 2 { // asking again changes nothing
				inUse, err := pool.Detach(context.Background(), d)
				require.NoError(t, err)
				require.True(t, inUse)
				requireFenced(t, device)
			}
			status, err := d.Status()
			require.NoError(t, err)
			require.True(t, status.Autoclear, "the device would outlive its last user")

			require.NoError(t, device.Close())
			requireReleased(t, d.Index, d.Name)
			detach(t, pool, d)
			got := make([]byte, 6)
			_, err = backing.ReadAt(got, 4096)
			require.NoError(t, err)
			require.Equal(t, "before", string(got), "an acknowledged write is lost")
		})
	}
}

func TestDetachWhileMountedGivesTheFileSystemEIO(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	require.NoError(t, backing.Truncate(32*mebibyte))
	d := attach(t, pool, backing, loopdev.Config{})
	out, err := exec.Command("mkfs.ext4", "-q", d.Path()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir := t.TempDir()
	require.NoError(t, unix.Mount(d.Path(), dir, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	file, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer file.Close()
	_, err = file.WriteString("before")
	require.NoError(t, err)
	require.NoError(t, file.Sync())

	start := time.Now()
	inUse, err := pool.Detach(context.Background(), d)
	require.NoError(t, err)
	require.True(t, inUse)
	t.Logf("detached in %v", time.Since(start))

	_, err = file.WriteString("after")
	if err == nil {
		err = file.Sync()
	}
	require.ErrorIs(t, err, unix.EIO)
	require.NoError(t, file.Close())
	// Not a plain unmount: a process that another test starts may have the file
	// for a moment, until it is executed.
	require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
	requireReleased(t, d.Index, d.Name)
	detach(t, pool, d)
}

func TestDetachWaitsForAMomentaryOpener(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	device := openDevice(t, d, os.O_RDONLY)
	timer := time.AfterFunc(20*time.Millisecond, func() { device.Close() })
	defer timer.Stop()
	detach(t, pool, d)
}

func TestEndOfContextEndsTheWaitOfDetach(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	device := openDevice(t, d, os.O_RDWR)

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := pool.Detach(cancelled, d)
	require.ErrorIs(t, err, context.Canceled)
	_, err = device.WriteAt(make([]byte, 512), 4096)
	require.NoError(t, err, "a call that was cancelled before it began did something")

	brief, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	inUse, err := pool.Detach(brief, d)
	require.NoError(t, err)
	require.True(t, inUse)
	requireFenced(t, device)
	require.NoError(t, device.Close())
	requireReleased(t, d.Index, d.Name)
}

func TestAutoclearDeviceGoesWithItsHolder(t *testing.T) {
	t.Parallel()
	t.Run("when it is let go", func(t *testing.T) {
		t.Parallel()
		pool := newPool(t, loopdev.Options{})
		d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{Autoclear: true})
		user := openDevice(t, d, os.O_RDWR)
		for range 2 { // letting go twice is harmless
			require.NoError(t, d.Release())
		}
		_, err := user.WriteAt(make([]byte, 512), 4096)
		require.NoError(t, err, "Release took the device from its other user")
		require.NoError(t, user.Close())
		requireReleased(t, d.Index, d.Name)
	})
	t.Run("when it is killed", func(t *testing.T) {
		t.Parallel()
		testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
		name := uniqueName()
		kill, index := startHelper(t, "hold", newBacking(t, t.TempDir()).Name(), name)
		status, err := loopdev.StatusOf(index, loopdev.Options{})
		require.NoError(t, err)
		require.Equal(t, name, status.Name)
		kill()
		requireReleased(t, index, name)
	})
}

func TestPlainDeviceOutlivesReleaseAndPool(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(t, err)
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	require.NoError(t, d.Release())
	require.NoError(t, pool.Close())
	_, err = d.Status()
	require.NoError(t, err)
	// The clean-up detaches with the closed pool.
}
