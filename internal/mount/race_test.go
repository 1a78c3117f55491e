//go:build linux

package mount_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

// An arena holds a directory called slot and one that is the victim, both with a
// directory target in them, and a link to the victim that is exchanged for slot
// all the time.
type arena struct {
	*swapper
	dir, victim, slot, link string
}

func newArena(t *testing.T) arena {
	t.Helper()
	dir := workDir(t)
	a := arena{dir: dir, victim: dirIn(t, dir, "victim"), slot: dirIn(t, dir, "slot"), link: filepath.Join(dir, "link")}
	dirIn(t, a.victim, "target")
	dirIn(t, a.slot, "target")
	require.NoError(t, os.Symlink("victim", a.link))
	a.swapper = startSwapper(a.slot, a.link)
	return a
}

// A swapper exchanges two names.
type swapper struct {
	swaps      atomic.Int64
	quit, done chan struct{}
}

func startSwapper(a, b string) *swapper {
	s := &swapper{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.quit:
				return
			default:
			}
			// EBUSY while one of them is mounted on.
			if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
				s.swaps.Add(1)
			}
		}
	}()
	return s
}

// race counts turns until there were n of them and as many swaps.
func (s *swapper) race(n int) iter.Seq[int] {
	n = fewer(n)
	return func(yield func(int) bool) {
		for turn := 0; turn < n || s.swaps.Load() < int64(n); turn++ {
			if !yield(turn) {
				return
			}
		}
	}
}

func (s *swapper) stop() {
	close(s.quit)
	<-s.done
}

// watch looks at a directory all the time, until the returned function is called,
// and fails the test if it ever sees something mounted there.
func watch(t *testing.T, dir string) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
			}
			if info, err := mount.Stat(dir); err != nil || info.IsRoot {
				t.Errorf("%s is mounted on: %v", dir, err)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// takeAway unmounts what is mounted in dir while its names are swapped.
func takeAway(t *testing.T, dir string) {
	t.Helper()
	for {
		entries, err := mount.ListUnder(dir)
		require.NoError(t, err)
		if len(entries) == 0 {
			return
		}
		if err := mount.Unmount(entries[0].MountPoint); err != nil {
			requireRefusal(t, err)
		}
	}
}

// requireRefusal wants an error that says that the path was not as it should be.
func requireRefusal(t *testing.T, err error) {
	t.Helper()
	refused := errors.Is(err, backends.ErrInvalid) || errors.Is(err, backends.ErrAborted)
	require.True(t, refused, "%v", err)
}

func TestMountIsNotRedirectedByASwapOnTheWay(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	a := newArena(t)
	defer a.stop()
	mountInARace(t, a.swapper, a.dir, a.slot+"/target", a.link+"/target", a.victim+"/target")
}

func TestMountIsNotRedirectedByASwapOfTheTarget(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	target, link := dirIn(t, dir, "target"), filepath.Join(dir, "link")
	victim := dirIn(t, dir, "victim")
	require.NoError(t, os.Symlink("victim", link))
	s := startSwapper(target, link)
	defer s.stop()
	// What is mounted on cannot be renamed, but an exchange that the kernel had
	// begun before takes the mount along.
	mountInARace(t, s, dir, target, link, victim)
}

// mountInARace mounts and binds on target, which goes by the other name at
// times. A success must be a mount there and a failure none at all; nothing must
// be mounted on the victim, not even for a moment.
func mountInARace(t *testing.T, s *swapper, dir, target, otherName, victim string) {
	t.Helper()
	source := t.TempDir()
	defer watch(t, victim)()
	for turn := range s.race(100) {
		var err error
		if turn%2 == 0 {
			err = mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{})
		} else {
			err = mount.Bind(t.Context(), source, target, mount.Options{})
		}
		entries, listErr := mount.ListUnder(dir)
		require.NoError(t, listErr)
		if err != nil {
			requireRefusal(t, err)
			require.Empty(t, entries)
			continue
		}
		require.Len(t, entries, 1)
		require.Contains(t, []string{target, otherName}, entries[0].MountPoint)
		takeAway(t, dir)
	}
}

func TestUnmountIsNotRedirectedByASwap(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	a := newArena(t)
	kept := tmpfsOn(t, a.victim+"/target")
	for turn := range a.race(400) {
		unmount := mount.Unmount
		if turn%2 == 0 {
			unmount = mount.Detach
		}
		if err := unmount(a.slot + "/target"); err != nil {
			requireRefusal(t, err)
		}
	}
	a.stop()
	require.Equal(t, kept, entryOf(t, kept).MountPoint)
}

func TestTargetsAreNotRedirectedByASwap(t *testing.T) {
	t.Parallel()
	need(t)
	a := newArena(t)
	dirIn(t, a.victim, "dir")
	fileIn(t, a.victim, "file", "")
	for turn := range a.race(400) {
		dir, file := a.slot+"/dir", a.slot+"/file"
		_, dirErr := mount.MakeDirTarget(dir)
		_, fileErr := mount.MakeFileTarget(file)
		_, newErr := mount.MakeDirTarget(fmt.Sprintf("%s/new-%d", a.slot, turn))
		for _, err := range []error{dirErr, fileErr, newErr, mount.RemoveTarget(dir), mount.RemoveTarget(file)} {
			if err != nil {
				requireRefusal(t, err)
			}
		}
	}
	a.stop()
	left, err := os.ReadDir(a.victim)
	require.NoError(t, err)
	names := make([]string, len(left))
	for i, e := range left {
		names[i] = e.Name()
	}
	require.Equal(t, []string{"dir", "file", "target"}, names)
}
