//go:build linux

package nodemount

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/mount"
)

// Device is the number, as stat(2) has it, of the block device whose file system
// is mounted at path: a mount point, else mounted is false. A mount that does
// not answer any more has no number and is mounted.
//
// Most file systems answer with their device's number. btrfs has a number of
// its own and is asked for its device.
func Device(path string) (dev uint64, mounted bool, err error) {
	info, err := mount.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case !info.IsRoot:
		return 0, false, nil
	case info.Dead:
		return 0, true, nil
	case unix.Major(info.Dev) != 0:
		return info.Dev, true, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, true, fmt.Errorf("ask what is mounted at %s: %w", path, err)
	}
	if st.Type != unix.BTRFS_SUPER_MAGIC {
		return info.Dev, true, nil
	}
	dev, err = btrfsDevice(path)
	return dev, true, err
}

// btrfsDeviceInfo is struct btrfs_ioctl_dev_info_args of linux/btrfs.h.
type btrfsDeviceInfo struct {
	id   uint64
	_    [3064]byte
	path [1024]byte
}

// btrfsDevice asks for the first device, which is the only one of what csiemu
// makes.
func btrfsDevice(path string) (uint64, error) {
	const devInfo = 0xD000941E // BTRFS_IOC_DEV_INFO
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, fmt.Errorf("ask btrfs for its device: %w", err)
	}
	defer dir.Close()
	info := btrfsDeviceInfo{id: 1}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), devInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 {
		return 0, fmt.Errorf("ask btrfs at %s for its device: %w", path, errno)
	}
	name, _, _ := bytes.Cut(info.path[:], []byte{0})
	node := string(name)
	var st unix.Stat_t
	err = unix.Stat(node, &st)
	if err == nil {
		return st.Rdev, nil
	}
	// It is the name that another container mounted it by.
	if number := LoopNumber(node); number != 0 {
		return number, nil
	}
	return 0, fmt.Errorf("ask for the device of btrfs at %s: %w", path, &os.PathError{Op: "stat", Path: node, Err: err})
}

// NodeNumber is the number of the loop device whose node is at path, as stat(2)
// has it; 0 if it is none. A node that is gone is known by its name.
func NodeNumber(path string) uint64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return LoopNumber(path)
	}
	return st.Rdev
}

// IsTmpfs says whether path lies on a tmpfs.
func IsTmpfs(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// LoopNumber is the number of a loop device, as stat(2) has it, by the name of a
// node that need not exist here; 0 for other names. Where the loop driver counts
// partitions (max_part), which is not its default, it is wrong.
func LoopNumber(node string) uint64 {
	const loopMajor = 7
	name, ok := strings.CutPrefix(filepath.Base(node), "loop")
	index, err := strconv.ParseUint(name, 10, 20)
	if !ok || err != nil {
		return 0
	}
	return unix.Mkdev(loopMajor, uint32(index))
}
