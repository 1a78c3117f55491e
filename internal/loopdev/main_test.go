//go:build linux

package loopdev_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(helperVariable); task != "" {
		if err := help(task, os.Getenv(helperVariable+"_PATH"), os.Getenv(helperVariable+"_NAME")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

func newPool(tb testing.TB, o loopdev.Options) *loopdev.Pool {
	tb.Helper()
	testenv.Need(tb, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	pool, err := loopdev.NewPool(o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pool.Close()) })
	return pool
}

// uniqueName is a name that no other test, run or program has.
func uniqueName() string { return "test-" + rand.Text() }

const mebibyte = 1 << 20

// newBacking makes a sparse file of 1 MiB in dir.
func newBacking(tb testing.TB, dir string) *os.File {
	tb.Helper()
	file, err := os.CreateTemp(dir, "backing-")
	require.NoError(tb, err)
	tb.Cleanup(func() { file.Close() })
	require.NoError(tb, file.Truncate(mebibyte))
	return file
}

// attach attaches for the length of the test.
func attach(tb testing.TB, pool *loopdev.Pool, backing *os.File, c loopdev.Config) *loopdev.Device {
	tb.Helper()
	if c.Name == "" {
		c.Name = uniqueName()
	}
	d, err := pool.Attach(context.Background(), backing, c)
	require.NoError(tb, err)
	tb.Cleanup(func() { detach(tb, pool, d) })
	return d
}

// detach detaches and insists that nobody is left.
func detach(tb testing.TB, pool *loopdev.Pool, d *loopdev.Device) {
	tb.Helper()
	inUse, err := pool.Detach(context.Background(), d)
	require.NoError(tb, err)
	require.False(tb, inUse, "loop%d is still in use", d.Index)
}

// requireReleased waits until no device carries the name of d.
func requireReleased(tb testing.TB, index int, name string) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		status, err := loopdev.StatusOf(index, loopdev.Options{})
		return err != nil || status.Name != name
	}, 5*time.Second, 2*time.Millisecond, "loop%d is still bound", index)
}

// requireUnbound waits until nothing is bound to the device.
func requireUnbound(tb testing.TB, index int) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		_, err := loopdev.StatusOf(index, loopdev.Options{})
		return errors.Is(err, loopdev.ErrNotBound)
	}, 5*time.Second, 2*time.Millisecond, "loop%d is still bound", index)
}

// lose attaches a device, has it released, and lets another program take its
// index. It repeats that if a third one was faster.
func lose(t *testing.T, pool *loopdev.Pool, release func(*loopdev.Device)) (lost *loopdev.Device, foreign string) {
	t.Helper()
	foreign = "/foreign/" + uniqueName()
	for range 100 {
		lost = attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
		release(lost)
		if bindForeign(t, lost.Index, foreign) {
			return lost, foreign
		}
	}
	t.Fatal("every index that was released was taken by a third program")
	return nil, ""
}

// requireUntouched wants the other program's device to be as it was made.
func requireUntouched(t *testing.T, index int, foreign string) {
	t.Helper()
	status, err := loopdev.StatusOf(index, loopdev.Options{})
	require.NoError(t, err)
	require.Equal(t, foreign, status.Name)
	require.Zero(t, status.SizeLimit)
	require.False(t, status.Autoclear, "the other program's device was told to go")
}

// bindForeign binds a device as another program would, without the pool, for
// the length of the test. It reports false if the index is not free.
func bindForeign(tb testing.TB, index int, name string) bool {
	tb.Helper()
	backing := newBacking(tb, tb.TempDir())
	fd, err := unix.Open(fmt.Sprintf("/dev/loop%d", index), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	copy(config.Info.File_name[:63], name)
	if err := unix.IoctlLoopConfigure(fd, &config); err != nil {
		unix.Close(fd)
		return false
	}
	tb.Cleanup(func() {
		require.NoError(tb, unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0))
		require.NoError(tb, unix.Close(fd))
	})
	return true
}

func openDevice(tb testing.TB, d *loopdev.Device, flags int) *os.File {
	tb.Helper()
	file, err := os.OpenFile(d.Path(), flags, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { file.Close() })
	return file
}

// absentIndex is the index of a device that does not exist.
func absentIndex(tb testing.TB) int {
	tb.Helper()
	for {
		index := 8 + mathrand.IntN(1<<20-8)
		if _, err := os.Stat(sysDir(index)); errors.Is(err, os.ErrNotExist) {
			return index
		}
	}
}

// requireAbsent wants a device not to exist.
func requireAbsent(tb testing.TB, index int) {
	tb.Helper()
	_, err := os.Stat(sysDir(index))
	require.ErrorIs(tb, err, os.ErrNotExist, "looking for loop%d made it", index)
}

func sysDir(index int) string { return fmt.Sprintf("/sys/block/loop%d", index) }
