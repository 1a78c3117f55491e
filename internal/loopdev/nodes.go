//go:build linux

package loopdev

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// Numbers of Documentation/admin-guide/devices.txt.
const (
	loopMajor    = 7
	miscMajor    = 10
	controlMinor = 237
)

// How a device is opened. Reading is enough for every ioctl but the binding of a
// writable device, and is silent: closing a descriptor that could write makes
// udev look at the device, which is one more opener to wait for.
const (
	readOnly  = unix.O_RDONLY | unix.O_CLOEXEC
	readWrite = unix.O_RDWR | unix.O_CLOEXEC
	// exclusive fails with EBUSY while a mount or the like claims the device.
	exclusive = readOnly | unix.O_EXCL
)

// nodes opens loop devices by index, making device nodes where they are missing.
type nodes struct {
	dev, nodeDir string
	// partShift is how many bits of a minor number count partitions.
	partShift int
}

func newNodes(o Options) nodes {
	dev := o.Dev
	if dev == "" {
		dev = "/dev"
	}
	return nodes{dev: dev, nodeDir: o.NodeDir, partShift: partShift()}
}

// partShift asks, once, how the loop driver was loaded: it cannot be loaded anew
// while this process holds loop-control. The parameter is one less than a power of
// two, 0 if the driver numbers no partitions (the usual case, and the answer where
// /sys is missing).
var partShift = sync.OnceValue(func() int {
	data, err := os.ReadFile("/sys/module/loop/parameters/max_part")
	if err != nil {
		return 0
	}
	parts, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 16)
	if err != nil {
		return 0
	}
	return bits.Len64(parts)
})

func (n nodes) minor(index int) uint32 { return uint32(index) << n.partShift }

func nodeName(index int) string { return "loop" + strconv.Itoa(index) }

// open opens a device by its node, which is there afterwards, and returns the
// node's path. ErrNotBound is returned if there is no such device or if it is
// just being released.
func (n nodes) open(index, mode int) (path string, fd int, err error) {
	path = n.dev + "/" + nodeName(index)
	fd, err = open(path, mode)
	if errors.Is(err, unix.ENOENT) {
		if path, err = n.make(index, nodeName(index)); err != nil {
			return "", -1, err
		}
		fd, err = open(path, mode)
	}
	if err != nil {
		return "", -1, openError(path, err)
	}
	return path, fd, nil
}

// peek opens a device like open, but leaves no node behind.
func (n nodes) peek(index int) (fd int, err error) {
	path := n.dev + "/" + nodeName(index)
	fd, err = open(path, readOnly)
	if errors.Is(err, unix.ENOENT) {
		// A name of its own: the usual one may be in use by another process.
		name := fmt.Sprintf(".%s-%d-%d", nodeName(index), os.Getpid(), rand.Uint64())
		if path, err = n.make(index, name); err != nil {
			return -1, err
		}
		defer os.Remove(path)
		fd, err = open(path, readOnly)
	}
	if err != nil {
		return -1, openError(path, err)
	}
	return fd, nil
}

// errNoNode says that a device has no node, and none may be made.
var errNoNode = errors.New("no device node")

// make makes a node in NodeDir; one that is there already is used again.
func (n nodes) make(index int, name string) (string, error) {
	if !exists(index) {
		// Another program removed the device. Opening a node would make it anew.
		return "", fmt.Errorf("find loop%d: %w", index, ErrNotBound)
	}
	if n.nodeDir == "" {
		return "", fmt.Errorf("%w: %w", errNoNode, &kernel.NotSupportedError{
			Feature: kernel.Mknod,
			Reason:  fmt.Sprintf("%s has no node for loop%d, and no directory is set to make one in", n.dev, index),
			Remedy:  "give the container the host's /dev, or a directory for device nodes",
		})
	}
	path := filepath.Join(n.nodeDir, name)
	err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, n.minor(index))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return "", fmt.Errorf("make device node %s: %w", path, err)
	}
	return path, nil
}

// openControl opens loop-control, by a node of our own if Dev has none.
func (n nodes) openControl() (*os.File, error) {
	control, err := os.OpenFile(filepath.Join(n.dev, "loop-control"), os.O_RDWR, 0)
	if errors.Is(err, unix.ENOENT) && n.nodeDir != "" {
		path := filepath.Join(n.nodeDir, "loop-control")
		err = unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(miscMajor, controlMinor)))
		if err == nil || errors.Is(err, unix.EEXIST) {
			control, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	if err != nil {
		return nil, &kernel.NotSupportedError{
			Feature: kernel.Loop,
			Reason:  fmt.Sprintf("open loop control: %v", err),
			Remedy:  "run as root, modprobe loop on the host; in a container, docker run --privileged",
		}
	}
	return control, nil
}

// openError tells a device that is not there from one that cannot be opened.
func openError(path string, err error) error {
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("open %s: %w (%w)", path, ErrNotBound, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}
