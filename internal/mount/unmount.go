//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// Unmount takes away the mount at target. Of several on top of each other it
// takes the topmost only, as those below may be another's: Stat says whether
// one is left. It is no error if nothing is mounted there, if target or a
// directory on the way does not exist, or if what is mounted is dead.
//
// ErrBusy is returned when a process uses the mount (an open file, a working
// directory, a mount below it) and still does after a quarter of a second,
// backends.ErrInvalid for a path with a symbolic link on the way. A file system
// whose last mount goes is written out before Unmount returns.
func Unmount(target string) error {
	if err := unmount(target, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// Detach takes away the topmost mount at target, with every mount below it, even
// if it is in use: who has a file open keeps it, nobody else finds it any more.
// It is for dead mounts, whose users would hold them forever. What is no error
// for Unmount is none here.
func Detach(target string) error {
	if err := unmount(target, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach %s: %w", target, err)
	}
	return nil
}

func unmount(target string, flags int) error {
	l, err := openPlace(target)
	if errors.Is(err, backends.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.close()
	err = patiently(context.Background(), func() error { return l.unmount(flags) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		// The kernel's word for what is no mount, but not only for that.
		info, infoErr := l.info()
		if errors.Is(infoErr, backends.ErrNotFound) || infoErr == nil && !info.IsRoot {
			return nil
		}
	}
	return classified(err)
}

// unmount goes by the open directory and a name that is not followed: a
// descriptor of the mount itself would keep it busy.
func (l place) unmount(flags int) error {
	return retryInterrupted(func() error { return unix.Unmount(l.byDescriptor(), flags|unix.UMOUNT_NOFOLLOW) })
}

// descriptorPath is a path to what is open as fd.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
