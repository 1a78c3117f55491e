//go:build linux

package freeze

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The ioctls of linux/fs.h; x/sys does not have them.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// Thaw lets the writers of the file system mounted at dir go on, whoever froze
// it. It is for start-up: what a record says was frozen when this process and
// its watchdog were killed. A file system that is not frozen, and a directory
// that is gone or where nothing is mounted, is no error.
func Thaw(dir string) error {
	if err := thawMounted(dir, func(uint64) bool { return true }); err != nil {
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	return nil
}

// thawMounted thaws what is mounted at dir, if it is the right device.
func thawMounted(dir string, isRight func(device uint64) bool) error {
	root, device, err := openMounted(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotMounted) {
		return nil
	}
	if err != nil {
		return err
	}
	if isRight(device) {
		err = thaw(root)
	}
	if errors.Is(err, unix.EINVAL) { // it was not frozen
		err = nil
	}
	return errors.Join(err, root.Close())
}

// openMounted opens the root directory of the file system mounted at dir.
func openMounted(dir string) (root *os.File, device uint64, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("open", err)
	}
	root = os.NewFile(uintptr(fd), dir)
	var st unix.Statx_t
	err = os.NewSyscallError("statx", unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st))
	if err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = ErrNotMounted
	}
	if err != nil {
		return nil, 0, errors.Join(err, root.Close())
	}
	return root, unix.Mkdev(st.Dev_major, st.Dev_minor), nil
}

func freeze(root *os.File) error {
	return os.NewSyscallError("ioctl FIFREEZE", ioctl(root, fiFreeze))
}

func thaw(root *os.File) error {
	return os.NewSyscallError("ioctl FITHAW", ioctl(root, fiThaw))
}

func ioctl(f *os.File, request uint) error {
	for {
		err := unix.IoctlSetInt(int(f.Fd()), request, 0)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
