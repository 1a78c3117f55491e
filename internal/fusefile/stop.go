//go:build linux

package fusefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Stop ends the holder of dir and takes its mount away; an empty volume id
// stands for any volume. With wait it returns when the process is gone, which is
// when nothing uses the file any more; ctx should have an end then. A holder that
// does not answer is killed. Gone already is no error.
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
	c, err := connect(ctx, dir)
	switch {
	case errors.Is(err, ErrNotServing):
		return clear(ctx, dir, volumeID)
	case err != nil:
		return err
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
	if err := ended(ctx, dir, c.pid); err != nil {
		return err
	}
	return clear(ctx, dir, volumeID)
}

// clear takes away what a holder left that is gone.
func clear(ctx context.Context, dir, volumeID string) error {
	// One that is just starting or ending has no socket.
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	lock, err := awaitLock(ctx, dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	return errors.Join(clearMounts(dir, volumeID), removeControl(dir))
}

// Reap takes the exit status of a holder that has ended, so that no zombie is
// left of it, and reports whether it has. It does not wait for one that runs.
func (h *Holder) Reap() (ended bool) {
	if h.pidfd < 0 {
		return false
	}
	var info unix.Siginfo
	// ECHILD when it was reaped by its number. Without an error and a signal it
	// runs.
	err := unix.Waitid(unix.P_PIDFD, h.pidfd, &info, unix.WEXITED|unix.WNOHANG, nil)
	if err == nil && info.Signo == 0 {
		return false
	}
	_ = h.Close() // it has nothing to lose
	return true
}

// Close lets go of the holder. One that is tied to this process stops, the others
// go on. Closing again is no error.
func (h *Holder) Close() error {
	var errs []error
	if h.pidfd >= 0 {
		errs = append(errs, os.NewSyscallError("close", unix.Close(h.pidfd)))
		h.pidfd = -1
	}
	if h.link != nil {
		errs = append(errs, h.link.Close())
		h.link = nil
	}
	return errors.Join(errs...)
}
