//go:build linux

package filesystem

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// Offsets in a superblock of btrfs, all fields little endian
// (include/uapi/linux/btrfs_tree.h, struct btrfs_super_block).
const (
	btrfsFSID         = 32
	btrfsAddress      = 48
	btrfsMagic        = 64
	btrfsLogRoot      = 96
	btrfsDevices      = 136
	btrfsSectorSize   = 144
	btrfsIncompat     = 188
	btrfsChecksumType = 196
	btrfsDeviceBytes  = 209
	btrfsMetadataUUID = 571
	btrfsSuperBytes   = 4096
	btrfsSuperOffset  = 64 << 10

	// btrfsIncompatMetadataUUID says that metadata carries metadata_uuid.
	btrfsIncompatMetadataUUID = 1 << 10
	btrfsChecksumCRC32C       = 0
)

// btrfsSupers are the places of the superblock and its mirrors. A device has
// those that lie whole within it.
var btrfsSupers = [...]int64{btrfsSuperOffset, 64 << 20, 256 << 30}

// btrfsSuper is a superblock of btrfs.
type btrfsSuper []byte

func (s btrfsSuper) u16(offset int) uint16 { return binary.LittleEndian.Uint16(s[offset:]) }
func (s btrfsSuper) u32(offset int) uint32 { return binary.LittleEndian.Uint32(s[offset:]) }
func (s btrfsSuper) u64(offset int) uint64 { return binary.LittleEndian.Uint64(s[offset:]) }

// valid reports whether this is the superblock that belongs at the offset.
func (s btrfsSuper) valid(offset int64) bool {
	sector := s.u32(btrfsSectorSize)
	return string(s[btrfsMagic:btrfsMagic+8]) == "_BHRfS_M" &&
		s.u64(btrfsAddress) == uint64(offset) &&
		bits.OnesCount32(sector) == 1 && sector >= 512 && sector <= 65536 &&
		s.u64(btrfsDeviceBytes) <= math.MaxInt64
}

// intact reports whether the checksum is right. Only crc32c is computed.
func (s btrfsSuper) intact() bool {
	return s.u16(btrfsChecksumType) == btrfsChecksumCRC32C && s.checksum() == s.u32(0)
}

// checksum is crc32c over everything behind the room for the checksum.
func (s btrfsSuper) checksum() uint32 { return crc32.Checksum(s[btrfsFSID:], castagnoli) }

func isBtrfs(im image) bool {
	super := im.at(btrfsSuperOffset, btrfsSuperBytes)
	return super != nil && btrfsSuper(super).valid(btrfsSuperOffset)
}

func describeBtrfs(im image, c *Content) {
	super := btrfsSuper(im.at(btrfsSuperOffset, btrfsSuperBytes))
	c.UUID = uuid(super[btrfsFSID : btrfsFSID+16]).String()
	// The size of this device's part: a file system of several devices is
	// larger, but does not grow on this one.
	c.SizeBytes = int64(super.u64(btrfsDeviceBytes))
	c.geometry = geometry{blockBytes: int64(super.u32(btrfsSectorSize))}
	c.Clean = super.u64(btrfsLogRoot) == 0 && super.intact()
}
