//go:build linux

package freeze

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
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
	root, err := openMounted(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotMounted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	err = thawRoot(root)
	if errors.Is(err, unix.EINVAL) { // it was not frozen
		err = nil
	}
	if err := errors.Join(err, closeAndSettle(root)); err != nil {
		return fmt.Errorf("thaw %s: %w", dir, err)
	}
	return nil
}

// openMounted opens the root directory of the file system mounted at dir.
func openMounted(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	root := os.NewFile(uintptr(fd), dir)
	var st unix.Statx_t
	err = os.NewSyscallError("statx", unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st))
	if err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = ErrNotMounted
	}
	if err != nil {
		return nil, errors.Join(err, closeAndSettle(root))
	}
	return root, nil
}

// closeAndSettle closes f, and waits until no child process between fork and
// exec has it still: an unmount right after would find the file system busy.
func closeAndSettle(f *os.File) error {
	err := f.Close()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return err
}

func freezeRoot(root *os.File) error {
	err := ioctl(int(root.Fd()), fiFreeze)
	switch {
	case errors.Is(err, unix.EBUSY):
		return ErrFrozen
	case errors.Is(err, unix.EOPNOTSUPP):
		return &kernel.NotSupportedError{Feature: kernel.Freeze, Reason: "this type of file system cannot be frozen"}
	case errors.Is(err, unix.EPERM):
		return &kernel.NotSupportedError{Feature: kernel.Freeze, Reason: err.Error(), Remedy: "run with CAP_SYS_ADMIN"}
	}
	return os.NewSyscallError("ioctl FIFREEZE", err)
}

func thawRoot(root *os.File) error {
	return os.NewSyscallError("ioctl FITHAW", ioctl(int(root.Fd()), fiThaw))
}

func ioctl(fd int, request uint) error {
	for {
		err := unix.IoctlSetInt(fd, request, 0)
		if err != unix.EINTR {
			return err
		}
	}
}
