package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

const loopRemedy = "modprobe loop on the host; in a container, docker run --privileged -v /dev:/dev"

func probeLoop() error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return missing(Loop, loopRemedy, "%v", err)
	}
	return control.Close()
}

// probeLoopConfigure asks a free loop device to bind a descriptor that does not
// exist: a kernel that knows LOOP_CONFIGURE says EBADF, one that does not says
// EINVAL, and neither changes anything.
func probeLoopConfigure() error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return missing(LoopConfigure, loopRemedy, "%v", err)
	}
	defer control.Close()
	index, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return missing(LoopConfigure, loopRemedy, "find a free loop device: %v", err)
	}
	device, err := openLoop(index)
	if err != nil {
		return missing(LoopConfigure, loopRemedy, "%v", err)
	}
	defer device.Close()
	config := unix.LoopConfig{Fd: ^uint32(0)}
	switch err := unix.IoctlLoopConfigure(int(device.Fd()), &config); {
	case errors.Is(err, unix.EBADF):
		return nil
	case errors.Is(err, unix.EBUSY):
		// Taken by someone since: a kernel that looks at the state of the
		// device knows the call.
		return nil
	default:
		return missing(LoopConfigure, remedyFor(err, "5.8"), "LOOP_CONFIGURE on loop%d: %v", index, err)
	}
}

// openLoop opens a loop device by a node of its own if /dev does not show it.
func openLoop(index int) (*os.File, error) {
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", index), os.O_RDWR, 0)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return device, err
	}
	dir, err := os.MkdirTemp("", "csiemu-probe-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a device node: %w", err)
	}
	defer os.RemoveAll(dir)
	node := filepath.Join(dir, "loop")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(index)))); err != nil {
		return nil, fmt.Errorf("make a node for loop%d: %w", index, err)
	}
	return os.OpenFile(node, os.O_RDWR, 0)
}

// loopMajor is the major number of loop devices (Documentation/admin-guide/devices.txt).
const loopMajor = 7

func probeMknod() error {
	dir, err := os.MkdirTemp("", "csiemu-probe-")
	if err != nil {
		return missing(Mknod, "set TMPDIR to a directory that can be written to", "%v", err)
	}
	defer os.RemoveAll(dir)
	node := filepath.Join(dir, "loop")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, 0))); err != nil {
		return missing(Mknod, rootRemedy, "make a block device node: %v", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err == nil && stat.Flags&unix.ST_NODEV != 0 {
		return missing(Mknod, "set TMPDIR to a directory that is mounted without nodev", "%s is mounted nodev", dir)
	}
	return nil
}

func probeFUSE() error {
	const remedy = "modprobe fuse on the host; in a container, docker run --device /dev/fuse or --privileged"
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return missing(FUSE, remedy, "%v", err)
	}
	return file.Close()
}

// ioctlPointer is an ioctl with a pointer argument that x/sys has no name for.
func ioctlPointer(fd uintptr, request uint, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
