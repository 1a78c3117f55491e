//go:build linux

package filesystem

import (
	"context"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// The ioctls that ask a mounted file system for its size (include/uapi/linux).
const (
	getFSMap         = 0xC0C0583B
	xfsFSGeometryV1  = 0x80705864
	btrfsDeviceInfo  = 0xD000941E
	btrfsInfoBytes   = 4096
	btrfsInfoDevID   = 0
	btrfsInfoTotal   = 32
	btrfsSectorBytes = 4096
	fsMapRecords     = 256
)

// ProbeMounted says what Probe would say of the file system of type t that is
// mounted at dir, from the kernel's own figures: Type, SizeBytes and what Fills
// needs. UUID and Clean are not set. It needs no device node.
func ProbeMounted(ctx context.Context, dir string, t Type) (Content, error) {
	var content Content
	err := withMounted(ctx, dir, t, func(root *os.File) (err error) {
		content, err = mountedContent(root, t)
		return err
	})
	if err != nil {
		return Content{}, fmt.Errorf("probe %s at %s: %w", t, dir, err)
	}
	return content, nil
}

// withMounted opens dir and makes sure that it lies on a file system of type t.
func withMounted(ctx context.Context, dir string, t Type, do func(root *os.File) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	root, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &stat); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	magics := map[Type]int64{Ext4: unix.EXT4_SUPER_MAGIC, XFS: unix.XFS_SUPER_MAGIC, Btrfs: unix.BTRFS_SUPER_MAGIC}
	if int64(stat.Type) != magics[t] {
		return fmt.Errorf("%w: a file system of magic %#x is mounted there", backends.ErrPrecondition, stat.Type)
	}
	return do(root)
}

// mountedContent asks the file system that root lies on.
func mountedContent(root *os.File, t Type) (Content, error) {
	content := Content{Type: string(t)}
	switch t {
	case XFS:
		g, err := xfsGeometryOf(root)
		if err != nil {
			return Content{}, err
		}
		content.SizeBytes = int64(g.Blocks) * int64(g.BlockSize)
		content.geometry = xfsGeometry(g.BlockSize, g.GroupBlocks)
	case Btrfs:
		size, err := btrfsDeviceBytesOf(root)
		if err != nil {
			return Content{}, err
		}
		content.SizeBytes = size
		content.geometry = geometry{blockBytes: btrfsSectorBytes}
	default:
		var stat unix.Statfs_t
		if err := unix.Fstatfs(int(root.Fd()), &stat); err != nil {
			return Content{}, fmt.Errorf("statfs: %w", err)
		}
		size, err := ext4BytesOf(root, stat)
		if err != nil {
			return Content{}, err
		}
		content.SizeBytes = size
		content.geometry = ext4GeometryOf(stat, size)
	}
	return content, nil
}

// xfsGeometryV1 is struct xfs_fsop_geom_v1.
type xfsGeometryV1 struct {
	BlockSize, _, GroupBlocks, _, _, _, _, MaxPercent uint32
	Blocks                                            uint64
	_                                                 [72]byte
}

func xfsGeometryOf(root *os.File) (xfsGeometryV1, error) {
	var g xfsGeometryV1
	err := ioctl(root, xfsFSGeometryV1, unsafe.Pointer(&g))
	return g, err
}

// btrfsDeviceBytesOf asks for device 1, the only one that mkfs makes.
func btrfsDeviceBytesOf(root *os.File) (int64, error) {
	var info [btrfsInfoBytes / 8]uint64 // struct btrfs_ioctl_dev_info_args
	info[btrfsInfoDevID] = 1
	if err := ioctl(root, btrfsDeviceInfo, unsafe.Pointer(&info)); err != nil {
		return 0, err
	}
	return int64(info[btrfsInfoTotal/8]), nil
}

// fsMap is struct fsmap, one range of a file system's device.
type fsMap struct {
	device, flags                   uint32
	physical, owner, offset, length uint64
	_                               [3]uint64
}

// ext4BytesOf is where the last range ends that ext4 knows on its device. It
// looks only behind what statfs counts, which is the size without metadata.
func ext4BytesOf(root *os.File, stat unix.Statfs_t) (int64, error) {
	end := stat.Blocks * uint64(stat.Bsize)
	for {
		var request struct {
			inFlags, outFlags, count, entries uint32
			_                                 [6]uint64
			keys                              [2]fsMap
			records                           [fsMapRecords]fsMap
		}
		request.count = fsMapRecords
		request.keys[0].physical = end
		request.keys[1] = fsMap{
			device: math.MaxUint32, flags: math.MaxUint32,
			physical: math.MaxUint64, owner: math.MaxUint64, offset: math.MaxUint64,
		}
		if err := ioctl(root, getFSMap, unsafe.Pointer(&request)); err != nil {
			return 0, fmt.Errorf("map the file system: %w", err)
		}
		before := end
		for _, record := range request.records[:min(request.entries, fsMapRecords)] {
			end = max(end, record.physical+record.length)
		}
		if end == before {
			return int64(end), nil
		}
	}
}

// ext4GeometryOf is the geometry as far as statfs shows it. The last group may
// be a backup of unknown length, so Fills can be false for a device that has a
// few blocks more than ext4 can use.
func ext4GeometryOf(stat unix.Statfs_t, size int64) geometry {
	const bitmaps, worthwhile, inodeBytes = 2, 50, 256
	block := int64(stat.Bsize)
	perGroup := 8 * block
	groups := max(1, (size/block+perGroup-1)/perGroup)
	inodeBlocks := int64(stat.Files) / groups * inodeBytes / block
	g := geometry{blockBytes: block, groupBlocks: perGroup, minGroupBlocks: bitmaps + inodeBlocks + worthwhile}
	if block == 1024 {
		g.firstBlock = 1
	}
	return g
}
