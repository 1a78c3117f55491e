//go:build linux

package loopdev_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/loopdev"
)

func TestDeviceGrowsAfterRefresh(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	d := attach(t, pool, backing, loopdev.Config{})
	device := openDevice(t, d, os.O_RDWR)

	require.NoError(t, backing.Truncate(3*mebibyte))
	size, err := d.Size()
	require.NoError(t, err)
	require.EqualValues(t, mebibyte, size, "the size changed before Refresh")
	require.NoError(t, d.Refresh())
	size, err = d.Size()
	require.NoError(t, err)
	require.EqualValues(t, 3*mebibyte, size)
	_, err = device.WriteAt(make([]byte, 4096), 2*mebibyte)
	require.NoError(t, err, "a user of before cannot write to what was added")
	require.NoError(t, device.Close())
}

func TestFenceStopsUsersUntilUnfence(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	d := attach(t, pool, backing, loopdev.Config{})
	device := openDevice(t, d, os.O_RDWR)
	_, err := device.WriteAt([]byte("before"), 4096)
	require.NoError(t, err)

	for range 2 { // fencing twice is fencing once
		require.NoError(t, d.Fence())
	}
	requireFenced(t, device)
	size, err := d.Size()
	require.NoError(t, err)
	require.Less(t, size, int64(4096))
	status, err := d.Status()
	require.NoError(t, err)
	require.NotZero(t, status.SizeLimit)

	// A refresh must not open the fence.
	require.NoError(t, d.Refresh())
	requireFenced(t, device)

	for range 2 {
		require.NoError(t, d.Unfence())
	}
	got := make([]byte, 6)
	_, err = device.ReadAt(got, 4096)
	require.NoError(t, err)
	require.Equal(t, "before", string(got), "what was written before the fence is lost")
	_, err = device.WriteAt([]byte("after"), 4096)
	require.NoError(t, err)
	require.NoError(t, device.Close())
}

// requireFenced wants neither reads nor writes to reach the bytes.
func requireFenced(t *testing.T, device *os.File) {
	t.Helper()
	n, err := device.ReadAt(make([]byte, 512), 4096)
	require.Zero(t, n)
	require.Error(t, err)
	_, err = device.WriteAt(make([]byte, 512), 4096)
	require.Error(t, err)
	require.True(t, errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EIO), "write: %v", err)
}

func TestReleasedDeviceIsNotBound(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d, foreign := lose(t, pool, func(d *loopdev.Device) { detach(t, pool, d) })
	for name, call := range map[string]func() error{
		"Status":  func() error { _, err := d.Status(); return err },
		"Size":    func() error { _, err := d.Size(); return err },
		"Refresh": d.Refresh,
		"Fence":   d.Fence,
		"Unfence": d.Unfence,
		"Flush":   d.Flush,
	} {
		require.ErrorIs(t, call(), loopdev.ErrNotBound, name)
	}
	detach(t, pool, d)
	requireUntouched(t, d.Index, foreign)
}

func TestStaleDeviceDoesNotTouchTheOneThatTookItsIndex(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	// Somebody releases our device behind our back.
	d, foreign := lose(t, pool, func(d *loopdev.Device) {
		device := openDevice(t, d, os.O_RDONLY)
		require.NoError(t, unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0))
		require.NoError(t, device.Close())
		requireReleased(t, d.Index, d.Name)
	})
	detach(t, pool, d)
	requireUntouched(t, d.Index, foreign)

	// And the pool does not think that the index is free.
	next := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	require.NotEqual(t, d.Index, next.Index)
}
