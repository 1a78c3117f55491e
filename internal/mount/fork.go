//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"
	"syscall"

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

// awaitForks returns when no child is on its way to its exec. The kernel closes
// the child's copies of our descriptors just after that.
func awaitForks() {
	_ = withoutFork(func() error { return nil })
}

// A forkWatch is a pipe whose writing end every child copies with the
// descriptors that are opened after it.
type forkWatch struct{ reader, writer int }

func watchForks() (forkWatch, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return forkWatch{}, fmt.Errorf("make pipe: %w", classified(err))
	}
	return forkWatch{reader: ends[0], writer: ends[1]}, nil
}

// cover moves a descriptor above the writing end, if it is not there yet. An exec
// closes descriptors from the lowest on and the kernel then releases what they
// were of in the opposite order, so the writing end goes last. Called withoutFork
// with the opening of fd, it makes sure that no child has a copy of it that
// outlives the writing end.
func (w forkWatch) cover(fd int) (int, error) {
	if fd > w.writer {
		return fd, nil
	}
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, w.writer+1)
}

// await ends the watch. It is called when what was opened during the watch is
// closed, and returns when the copies of that are gone as well. When ctx ends it
// waits no longer and returns the reason.
func (w forkWatch) await(ctx context.Context) error {
	defer unix.Close(w.reader)
	_ = unix.Close(w.writer)
	ends := []unix.PollFd{{Fd: int32(w.reader)}} // POLLHUP comes unasked: no writer is left
	for timeout := 0; ; timeout = 10 {           // milliseconds until ctx is looked at again
		n, err := unix.Poll(ends, timeout)
		if n == 1 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for forked children: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
