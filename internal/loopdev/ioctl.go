//go:build linux

package loopdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open retries what a signal interrupted: Go's own preemption signals do that.
func open(path string, mode int) (int, error) {
	for {
		fd, err := unix.Open(path, mode, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// closeFD is not repeated after EINTR: on Linux the descriptor is gone then.
func closeFD(fd int) error {
	if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

// withFD lends a file's descriptor to f without changing its mode.
func withFD(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// ioctl is one whose argument is a number.
func ioctl(fd int, request uint, argument int) error {
	return unix.IoctlSetInt(fd, request, argument)
}

// clearFD releases what is bound to the device: at once on Linux before 6.8 if
// nobody else has it open, else when the last descriptor is closed.
func clearFD(fd int) error {
	if err := ioctl(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return nil
}

// diskSequence is the kernel's number of what is in the device now, which no
// other binding of any device has had or will have; 0 before Linux 5.15.
func diskSequence(fd int) uint64 {
	sequence, err := unix.IoctlGetUint64(fd, unix.BLKGETDISKSEQ)
	if err != nil {
		return 0
	}
	return sequence
}

func nameOf(info *unix.LoopInfo64) string {
	name, _, _ := bytes.Cut(info.File_name[:], []byte{0})
	return string(name)
}

func isInvalid(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) }

// kernelAtLeast compares the version that uname(2) tells. It is for changes of
// behaviour that no probe can see.
func kernelAtLeast(major, minor int) bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var gotMajor, gotMinor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &gotMajor, &gotMinor); n != 2 {
		return false
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}
