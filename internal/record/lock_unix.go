//go:build unix

package record

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockExclusive takes the lock that goes with the open file, so that it ends
// with the process however that ends.
func lockExclusive(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// unlock ends the lock at once, also where a process that is being started
// shares the open file for a moment still.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
