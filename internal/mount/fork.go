//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child of this process has copies of all descriptors from its fork until its
// exec is done, whatever O_CLOEXEC says. After we closed ours, its copies keep a
// mount busy, or a file system and its device alive. What is here keeps such
// children away where the work is short, and waits for them where it is not.

// withoutFork runs work, which has a descriptor of a mount open, while this
// process does not fork. Nothing that may wait for a file system belongs in work,
// as all forks of the process wait for it.
func withoutFork(work func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return work()
}

// patience is how long, in steps, patiently waits for users that go by
// themselves. The kernel gives no notice of the last user of a mount or device.
var patience = [...]time.Duration{
	0, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond,
	8 * time.Millisecond, 16 * time.Millisecond, 32 * time.Millisecond,
	64 * time.Millisecond, 128 * time.Millisecond,
}

// patiently repeats a call that finds something busy, as it may be a child
// before its exec that makes it so. It ends with the context.
func patiently(ctx context.Context, call func() error) error {
	err := call()
	for _, wait := range patience {
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		// Until no child is before its exec. What the exec closes is closed
		// shortly after that.
		_ = withoutFork(func() error { return nil })
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		err = call()
	}
	return err
}

// A forkWatch tells when no child has a copy of a descriptor any more. It is a
// pipe whose writing end every child copies with that descriptor. An exec closes
// descriptors from the lowest on, so the writing end is above the other.
type forkWatch struct{ reader, writer int }

// watchForks watches fd. It is called withoutFork together with what opens fd.
func watchForks(fd int) (forkWatch, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return forkWatch{}, fmt.Errorf("make pipe: %w", classified(err))
	}
	w := forkWatch{reader: ends[0], writer: ends[1]}
	if w.writer > fd {
		return w, nil
	}
	defer unix.Close(ends[1])
	var err error
	if w.writer, err = unix.FcntlInt(uintptr(ends[1]), unix.F_DUPFD_CLOEXEC, fd+1); err != nil {
		_ = unix.Close(w.reader)
		return forkWatch{}, fmt.Errorf("move pipe: %w", classified(err))
	}
	return w, nil
}

// The time that await gives a child, which needs microseconds if it gets a
// processor.
const (
	forkWait  = 10 * time.Millisecond
	forkWaits = 100
)

// await ends the watch and returns when no child has a copy of the descriptor,
// at the latest after a second. It is called withoutFork while the descriptor is
// still open: who closes it then is the last.
func (w forkWatch) await() {
	defer unix.Close(w.reader)
	_ = unix.Close(w.writer)
	ends := []unix.PollFd{{Fd: int32(w.reader)}} // POLLHUP comes unasked: no writer is left
	for range forkWaits {
		if n, err := unix.Poll(ends, int(forkWait.Milliseconds())); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// abandon ends the watch without waiting.
func (w forkWatch) abandon() {
	_ = unix.Close(w.writer)
	_ = unix.Close(w.reader)
}
