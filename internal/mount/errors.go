//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

var (
	// ErrBusy is returned when a mount, or the device that one is to be made
	// of, is in use. It is a backends.ErrPrecondition.
	ErrBusy = fmt.Errorf("%w: in use", backends.ErrPrecondition)
	// ErrDead is returned when what serves the file system at a path has gone
	// (ENOTCONN, ECONNABORTED, ESTALE, EHOSTDOWN), or when the file system shut
	// itself down after an error (EIO). Detach takes such a mount away. It is a
	// backends.ErrPrecondition.
	ErrDead = fmt.Errorf("%w: file system is dead", backends.ErrPrecondition)
)

// isDead reports whether err is what a file system answers that is not served
// any more. A file system that has shut itself down says EIO even of its root.
func isDead(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.EHOSTDOWN) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EIO)
}

// classified gives an errno of a call that mounts, unmounts, makes or removes
// the kind of package backends that it means, and leaves others as they are.
func classified(err error) error {
	kind := error(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		kind = ErrBusy
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		kind = backends.ErrNotFound
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		kind = backends.ErrInvalid
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.ENOMEM),
		errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		kind = backends.ErrExhausted
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		kind = backends.ErrPrecondition
	default:
		return err
	}
	return fmt.Errorf("%w: %w", err, kind)
}

// pathError is classified for the errno of a look at a path, where it says more.
func pathError(err error) error {
	switch {
	case isDead(err):
		return fmt.Errorf("%w: %w", err, ErrDead)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("an element is a symbolic link: %w: %w", err, backends.ErrInvalid)
	}
	return classified(err)
}

// unlessMissing returns err, or what the machine lacks if the kernel does not
// know the call.
func unlessMissing(err error, needed kernel.Feature) error {
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Asked without a deadline: the probe is a system call like the one that
	// failed.
	if missing := kernel.Probe(context.Background(), needed); missing != nil {
		return missing
	}
	return err
}
