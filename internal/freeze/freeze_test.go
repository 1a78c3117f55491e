//go:build linux

package freeze_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func newFreezer(tb testing.TB, o freeze.Options) *freeze.Freezer {
	f := freeze.New(o)
	tb.Cleanup(func() { require.NoError(tb, f.Close()) })
	return f
}

func TestFreezeHoldsWritersUntilThaw(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{})
	for range 3 {
		z, err := f.Freeze(t.Context(), dir)
		require.NoError(t, err)
		writer := startWriter(dir)
		require.True(t, isFrozen(t, dir))
		select {
		case err := <-writer:
			require.Fail(t, "the writer was not held", "%v", err)
		default:
		}
		require.NoError(t, z.Thaw())
		require.NoError(t, await(t, "end of the write", patience, writer))
		require.NoError(t, z.Thaw(), "again")
	}
}

func TestUnmountRightAfterThaw(t *testing.T) {
	t.Parallel()
	dir, other := ext4(t), ext4(t)
	f := newFreezer(t, freeze.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	defer noise.Wait()
	defer stop()
	noise.Go(func() { // children that have all descriptors between fork and exec
		for ctx.Err() == nil {
			_ = exec.Command("true").Run()
		}
	})
	noise.Go(func() { // the same watchdog is busy with another file system
		for ctx.Err() == nil {
			if z, err := f.Freeze(ctx, other); err == nil {
				_ = z.Thaw()
			}
		}
	})
	for range 20 {
		place := bind(t, dir)
		z, err := f.Freeze(t.Context(), place)
		require.NoError(t, err)
		require.NoError(t, z.Thaw())
		require.NoError(t, mount.Unmount(place))
	}
}

func TestLimitPasses(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{Limit: 300 * time.Millisecond})
	z, err := f.Freeze(t.Context(), dir)
	require.NoError(t, err)
	writer := startWriter(dir)
	await(t, "end of the limit", patience, z.Expired())
	require.NoError(t, await(t, "end of the write", patience, writer))
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired)
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired, "again")

	place := bind(t, dir)
	z, err = f.Freeze(t.Context(), place)
	require.NoError(t, err, "the next one")
	await(t, "end of the limit", patience, z.Expired())
	require.False(t, isFrozen(t, dir))
	require.NoError(t, mount.Unmount(place), "something holds what was thawed")
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired)
}

func TestThawedBySomebodyElse(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{})
	z, err := f.Freeze(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, freeze.Thaw(dir))
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired)
}

func TestFreezeOfAFrozenFileSystem(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f, other := newFreezer(t, freeze.Options{}), newFreezer(t, freeze.Options{})
	z, err := f.Freeze(t.Context(), dir)
	require.NoError(t, err)
	for name, f := range map[string]*freeze.Freezer{"by the same": f, "by another": other} {
		_, err = f.Freeze(t.Context(), dir)
		require.ErrorIs(t, err, freeze.ErrFrozen, name)
		require.ErrorContains(t, err, dir, name)
	}
	require.NoError(t, other.Close())
	require.True(t, isFrozen(t, dir), "the refused one thawed")
	require.NoError(t, z.Thaw())
}

func TestKilledWatchdogLeavesNothingFrozen(t *testing.T) {
	t.Parallel()
	dir, second := ext4(t), ext4(t)
	f := newFreezer(t, freeze.Options{})
	z, err := f.Freeze(t.Context(), dir)
	require.NoError(t, err)
	y, err := f.Freeze(t.Context(), second)
	require.NoError(t, err)
	writer, secondWriter := startWriter(dir), startWriter(second)
	first := f.WatchdogPID()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))

	require.NoError(t, await(t, "end of the write", patience, writer))
	require.NoError(t, await(t, "end of the write", patience, secondWriter))
	await(t, "news of the thaw", patience, z.Expired())
	await(t, "news of the thaw", patience, y.Expired())
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired)
	require.ErrorIs(t, y.Thaw(), freeze.ErrExpired)

	z, err = f.Freeze(t.Context(), dir)
	require.NoError(t, err, "with a new watchdog")
	require.NotEqual(t, first, f.WatchdogPID())
	require.NoError(t, z.Thaw())
}

func TestFreezersAreForConcurrentUse(t *testing.T) {
	t.Parallel()
	f := newFreezer(t, freeze.Options{})
	var work sync.WaitGroup
	for range 3 {
		dir := ext4(t)
		for range 3 {
			work.Go(func() {
				for range 8 {
					z, err := f.Freeze(t.Context(), dir)
					if errors.Is(err, freeze.ErrFrozen) {
						continue
					}
					if err == nil {
						err = z.Thaw()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
}

func TestOneFrozenThawedAtOnce(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{})
	z, err := f.Freeze(t.Context(), dir)
	require.NoError(t, err)
	results := make(chan error)
	for range 8 {
		go func() { results <- z.Thaw() }()
	}
	for range 8 {
		require.NoError(t, <-results)
	}
}

func TestCancelledFreezeIsUndone(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Freeze(cancelled, dir)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, f.WatchdogPID(), "something was begun")

	// At any moment of a freeze, which takes some milliseconds.
	for range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(rand.N(4*time.Millisecond), cancel)
		z, err := f.Freeze(ctx, dir)
		timer.Stop()
		cancel()
		if err == nil {
			require.NoError(t, z.Thaw())
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, await(t, "end of the write", patience, startWriter(dir)))
	}
}

// TestFreezeOfAHangingDeviceCanBeCancelled has a file system over another one
// that is frozen: its device hangs for as long.
func TestFreezeOfAHangingDeviceCanBeCancelled(t *testing.T) {
	t.Parallel()
	below := ext4(t)
	above := ext4Over(t, below)
	f := newFreezer(t, freeze.Options{Limit: patience})
	require.NoError(t, os.WriteFile(filepath.Join(above, "dirty"), make([]byte, 1<<20), 0o600))
	z, err := f.Freeze(t.Context(), below)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = f.Freeze(ctx, above)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, isFrozen(t, below), "it came back only when its device did")
	require.NoError(t, z.Thaw(), "the hanging one must not be in the way")
	require.NoError(t, await(t, "end of the write", patience, startWriter(above)))
}

func TestCloseThaws(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	place := bind(t, dir)
	f := freeze.New(freeze.Options{})
	z, err := f.Freeze(t.Context(), place)
	require.NoError(t, err)
	watchdog := f.WatchdogPID()
	require.NotZero(t, watchdog)
	writer := startWriter(dir)

	require.NoError(t, f.Close())
	require.NoError(t, await(t, "end of the write", patience, writer))
	require.NoError(t, mount.Unmount(place), "something is held still")
	require.ErrorIs(t, syscall.Kill(watchdog, 0), syscall.ESRCH)
	require.ErrorIs(t, z.Thaw(), freeze.ErrExpired)
	await(t, "news of the thaw", patience, z.Expired())

	require.NoError(t, f.Close(), "again")
	_, err = f.Freeze(t.Context(), dir)
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, freeze.New(freeze.Options{}).Close(), "never used")
}

func TestWhatCannotBeFrozen(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	f := newFreezer(t, freeze.Options{})
	inside := filepath.Join(dir, "inside")
	require.NoError(t, os.Mkdir(inside, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	cases := map[string]struct {
		dir  string
		want error
	}{
		"a directory in the file system": {inside, freeze.ErrNotMounted},
		"nothing":                        {filepath.Join(dir, "gone"), os.ErrNotExist},
		"a symbolic link":                {link, syscall.ENOTDIR},
		"tmpfs":                          {testenv.TmpfsDir(t), kernel.ErrNotSupported},
	}
	for name, c := range cases {
		_, err := f.Freeze(t.Context(), c.dir)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.dir, name)
	}
}

func TestThawOfWhatIsNotFrozen(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	require.NoError(t, freeze.Thaw(dir))
	require.NoError(t, freeze.Thaw(filepath.Join(dir, "lost+found")), "no mount point")
	require.NoError(t, freeze.Thaw(filepath.Join(dir, "gone")))
	require.NoError(t, freeze.Thaw(testenv.TmpfsDir(t)))
}

func BenchmarkFreezeThaw(b *testing.B) {
	dir := ext4(b)
	f := newFreezer(b, freeze.Options{})
	for b.Loop() {
		z, err := f.Freeze(b.Context(), dir)
		require.NoError(b, err)
		require.NoError(b, z.Thaw())
	}
}
