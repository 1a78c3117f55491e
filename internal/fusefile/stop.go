//go:build linux

package fusefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Stop ends the holder of dir and takes its mount away; an empty volume id
// stands for any volume. With wait it returns when the process is gone, which is
// when nothing uses the file any more, or with context.DeadlineExceeded after some
// seconds. A holder that does not answer is killed. Gone already is no error.
func Stop(ctx context.Context, dir, volumeID string, wait bool) error {
	if err := stop(ctx, dir, volumeID, wait); err != nil {
		return fmt.Errorf("stop holder in %s: %w", dir, err)
	}
	return nil
}

func stop(ctx context.Context, dir, volumeID string, wait bool) error {
	if _, err := os.Lstat(filepath.Join(dir, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil // there never was one
	}
	c, lock, err := find(ctx, dir)
	if err != nil {
		return err
	}
	if c == nil {
		return clear(lock, dir, volumeID)
	}
	defer c.conn.Close()
	if _, err := c.ask(ctx, answerPatience, request{Op: opStop}); err != nil && !errors.Is(err, ErrNotServing) {
		if ctx.Err() != nil {
			return err
		}
		if err := kill(c.pid); err != nil {
			return err
		}
		wait = true
	}
	if !wait {
		return nil
	}
	if lock, err = ended(ctx, dir, c.pid); err != nil {
		return err
	}
	return clear(lock, dir, volumeID)
}

// find returns a connection to the holder, or the lock if there is none. A holder
// that is just starting, whose parent was killed perhaps, has the lock before it
// can be spoken to.
func find(ctx context.Context, dir string) (*client, *os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	look := time.NewTicker(lockLook)
	defer look.Stop()
	for {
		lock, err := tryLock(dir)
		if lock != nil || err != nil {
			return nil, lock, err
		}
		c, err := connect(ctx, dir)
		if !errors.Is(err, ErrNotServing) {
			return c, nil, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("a holder has the lock and no socket: %w", ctx.Err())
		}
	}
}

// clear takes away what a holder left that is gone, and gives the lock back.
func clear(lock *os.File, dir, volumeID string) error {
	return errors.Join(clearMounts(dir, volumeID), removeControl(dir), lock.Close())
}

// Reap takes the exit status of a holder that has ended, so that no zombie is
// left of it, and reports whether it has; it is closed then. It does not wait for
// one that runs.
func (h *Holder) Reap() (ended bool) {
	if !h.reaped() {
		return false
	}
	_ = h.Close() // it has nothing to lose
	return true
}

func (h *Holder) reaped() bool {
	if h.pidfd < 0 {
		return false
	}
	var info unix.Siginfo
	// ECHILD when it was reaped by its number. Without an error and a signal it
	// runs.
	err := unix.Waitid(unix.P_PIDFD, h.pidfd, &info, unix.WEXITED|unix.WNOHANG, nil)
	return err != nil || info.Signo != 0
}

// Close lets go of the holder. One that is tied to this process stops, the others
// go on. Closing again is no error.
func (h *Holder) Close() error {
	var errs []error
	if h.pidfd >= 0 {
		h.reaped()
		errs = append(errs, os.NewSyscallError("close", unix.Close(h.pidfd)))
		h.pidfd = -1
	}
	if h.link != nil {
		errs = append(errs, h.link.Close())
		h.link = nil
	}
	return errors.Join(errs...)
}
