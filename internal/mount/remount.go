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

// Remount changes parameters of the file system that is mounted at target, for
// all its mounts; those that the options do not speak of stay as they are.
// Attributes of a mount are refused, as Bind sets them.
//
// backends.ErrInvalid is returned when the file system cannot change a parameter
// to that value, and changes none then; backends.ErrPrecondition when nothing is
// mounted at target. Other errors are those of Stat. The call into the file
// system cannot be interrupted.
func Remount(ctx context.Context, target string, o Options) error {
	if err := remount(ctx, target, o); err != nil {
		return fmt.Errorf("remount %s with %s: %w", target, o, err)
	}
	return nil
}

func remount(ctx context.Context, target string, o Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if attributes := o.Attributes(); len(attributes.entries) > 0 {
		return fmt.Errorf("%s belongs to one mount, not to the file system: %w", attributes, backends.ErrInvalid)
	}
	c, err := pickContext(target)
	if err != nil {
		return err
	}
	defer c.closeMounted()
	for _, p := range o.parameters() {
		if err := c.set(p); err != nil {
			return err
		}
	}
	if err := unix.FsconfigReconfigure(c.fd); err != nil {
		return c.refusal(err)
	}
	return nil
}

// pickContext opens the context of the file system that is mounted at target.
func pickContext(target string) (fsContext, error) {
	l, err := openPlace(target)
	if err != nil {
		return fsContext{}, err
	}
	defer l.close()
	return newContext(func() (int, error) {
		root, err := l.open(0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(root)
		// fspick would say EINVAL.
		var stat unix.Statx_t
		if err := unix.Statx(root, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &stat); err != nil {
			return -1, pathError(err)
		}
		if stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
			return -1, fmt.Errorf("nothing is mounted there: %w", backends.ErrPrecondition)
		}
		fd, err := unix.Fspick(root, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
		if err != nil {
			return -1, fmt.Errorf("open context of mounted file system: %w", classified(unlessMissing(err, kernel.FSMount)))
		}
		return fd, nil
	})
}

// refusal is the error of a reconfiguration: EINVAL is what tmpfs says to a size
// that is less than it holds, and others to what they cannot change.
func (c fsContext) refusal(err error) error {
	failure := c.failure(err)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", failure, backends.ErrInvalid)
	}
	return classified(failure)
}
