//go:build unix

package record

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// rename is os.Rename without its look at the new name, which is no directory.
func rename(from, to string) error {
	for {
		err := unix.Rename(from, to)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}

// openRecord opens a file to read it, unless it is a symbolic link, and does not
// wait for the other end of a pipe.
func openRecord(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// syncDir flushes the entries of a directory.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explain gives the errors of a full or read-only store their kind.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w; free space there or choose a larger directory", backends.ErrExhausted, err)
	default:
		return err
	}
}
