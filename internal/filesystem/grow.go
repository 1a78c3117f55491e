//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// The ioctls that grow a mounted file system (fs/ext4/ext4.h,
// fs/xfs/libxfs/xfs_fs.h, include/uapi/linux/btrfs.h).
const (
	ext4ResizeFS  = 0x40086610
	xfsGrowData   = 0x4010586E
	btrfsResize   = 0x50009403
	btrfsNameRoom = 4088
)

// GrowMounted grows the file system of type t that is mounted at dir to
// deviceBytes, the size that its device has now. One that fills the device
// already is no error and needs no privilege.
//
// Growing ext4 needs CAP_SYS_RESOURCE: without it a *kernel.NotSupportedError
// naming kernel.SysResource is returned, and GrowOffline does it the next time
// that the device is not mounted.
func GrowMounted(ctx context.Context, dir string, t Type, deviceBytes int64) error {
	err := withMounted(ctx, dir, t, func(root *os.File) error {
		now, err := mountedContent(root, t)
		if err != nil || now.Fills(deviceBytes) {
			return err
		}
		size := now.geometry.usable(deviceBytes)
		switch t {
		case XFS:
			return growXFS(root, size)
		case Btrfs:
			return growBtrfs(root, size)
		default:
			return growExt4(root, size)
		}
	})
	if err != nil {
		return fmt.Errorf("grow %s at %s to %d bytes: %w", t, dir, deviceBytes, err)
	}
	return nil
}

// GrowOffline grows an ext4 that is not mounted to the size of its device, after
// a full check (e2fsck -fp, resize2fs). One that fills the device already is no
// error and takes no time. xfs and btrfs are ErrNeedsMount.
//
// The check honours ctx. What follows runs to its end, because a resize that is
// cut short leaves a broken file system.
func GrowOffline(ctx context.Context, path string, t Type) error {
	if t != Ext4 {
		return fmt.Errorf("grow %s on %s: %w", t, path, ErrNeedsMount)
	}
	content, err := probeUnused(ctx, path, t)
	if err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", path, err)
	}
	size, err := sizeOf(path)
	if err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", path, err)
	}
	if content.Fills(size) {
		return nil
	}
	resize := tool{name: "resize2fs", feature: t.feature()}
	if _, err := resize.find(); err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", path, err)
	}
	if err := e2fsck(ctx, path, "-fp"); err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", path, err)
	}
	if _, err := resize.run(context.WithoutCancel(ctx), nil, path); err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", path, err)
	}
	return nil
}

// sizeOf is the length of a device in bytes.
func sizeOf(path string) (int64, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, _, err := deviceSize(file)
	return size, err
}

// growExt4 asks for a size in blocks, which are those that statfs counts in.
func growExt4(root *os.File, size int64) error {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &stat); err != nil {
		return fmt.Errorf("ask the block size: %w", err)
	}
	blocks := uint64(size) / uint64(stat.Bsize)
	err := ioctl(root, ext4ResizeFS, unsafe.Pointer(&blocks))
	if errors.Is(err, unix.EPERM) {
		return &kernel.NotSupportedError{
			Feature: kernel.SysResource,
			Reason:  "ext4 grows while it is mounted only with CAP_SYS_RESOURCE",
			Remedy:  "give the process CAP_SYS_RESOURCE, or unmount the volume: it grows when it is staged again",
		}
	}
	return err
}

// growXFS is struct xfs_growfs_data.
func growXFS(root *os.File, size int64) error {
	geometry, err := xfsGeometryOf(root)
	if err != nil {
		return err
	}
	request := struct {
		blocks     uint64
		maxPercent uint32
		_          uint32
	}{uint64(size) / uint64(geometry.BlockSize), geometry.MaxPercent, 0}
	return ioctl(root, xfsGrowData, unsafe.Pointer(&request))
}

// growBtrfs is struct btrfs_ioctl_vol_args, with the size of device 1 as text.
func growBtrfs(root *os.File, size int64) error {
	var request struct {
		_    int64
		name [btrfsNameRoom]byte
	}
	copy(request.name[:], fmt.Sprintf("1:%d", size))
	return ioctl(root, btrfsResize, unsafe.Pointer(&request))
}

// ioctl repeats the call while signals interrupt it. A positive answer is how
// btrfs says that something else of its kind is under way.
func ioctl(file *os.File, request uintptr, argument unsafe.Pointer) error {
	err := retryInterrupted(func() error {
		answer, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(argument))
		if errno != 0 {
			return errno
		}
		if int(answer) > 0 {
			return fmt.Errorf("answer %d: another operation on the devices is under way: %w", answer, backends.ErrAborted)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ioctl %#x: %w", request, err)
	}
	return nil
}
