//go:build linux

package loopdev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenNamed opens the device whose node is at path for reading, if it carries a
// name, and ErrNotBound if not. While it is open the device is not freed and its
// index not used again. It claims nothing, so it is in nobody's way.
func OpenNamed(path, name string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return nil, fmt.Errorf("open device %s: %w: %w", name, err, ErrNotBound)
	case err != nil:
		return nil, fmt.Errorf("open device %s: %w", name, err)
	}
	// Asked over the descriptor: from here on the device stays what it is.
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	switch {
	case errors.Is(err, unix.ENXIO), err == nil && unix.ByteSliceToString(info.File_name[:]) != name:
		return nil, errors.Join(fmt.Errorf("open device %s, which %s does not carry: %w", name, path, ErrNotBound), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("open device %s: ask %s for its name: %w", name, path, err), f.Close())
	}
	return f, nil
}

// StatusOfOpen asks for the state of the device on which f is open: one call into
// the kernel, where StatusOf has to find and open the device first. ErrNotBound is
// returned if nothing is bound to it any more. f may be closed meanwhile, which is
// an error.
func StatusOfOpen(f *os.File) (Status, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return Status{}, fmt.Errorf("get status of %s: %w", f.Name(), err)
	}
	var info *unix.LoopInfo64
	if controlErr := conn.Control(func(fd uintptr) { info, err = unix.IoctlLoopGetStatus64(int(fd)) }); controlErr != nil {
		err = controlErr
	}
	if errors.Is(err, unix.ENXIO) {
		err = fmt.Errorf("%w: %w", err, ErrNotBound)
	}
	if err != nil {
		return Status{}, fmt.Errorf("get status of %s: %w", f.Name(), err)
	}
	return statusFrom(info), nil
}

// IsNodeOf says whether the node at path is that of the device on which f is
// open.
func IsNodeOf(f *os.File, path string) bool {
	var have, want unix.Stat_t
	return unix.Fstat(int(f.Fd()), &have) == nil && unix.Stat(path, &want) == nil && have.Rdev == want.Rdev
}

// IsLoop says whether a device number, as stat(2) has it, is that of a loop
// device (Documentation/admin-guide/devices.txt).
func IsLoop(rdev uint64) bool { return unix.Major(rdev) == loopMajor }

// IsIOError says whether a device has failed a read or write with EIO.
func IsIOError(err error) bool { return errors.Is(err, unix.EIO) }
