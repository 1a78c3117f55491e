//go:build linux

package filesystem

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// Where ext2, ext3 and ext4 keep their primary superblock, and how long it is
// (Documentation/filesystems/ext4/super.rst has the fields).
const (
	extSuperOffset = 1024
	extSuperBytes  = 1024
)

// Offsets in the superblock.
const (
	extBlocksLow      = 0x04
	extFirstBlock     = 0x14
	extLogBlockSize   = 0x18
	extBlocksPerGroup = 0x20
	extInodesPerGroup = 0x28
	extWriteTime      = 0x30
	extMagic          = 0x38
	extState          = 0x3A
	extCheckTime      = 0x40
	extRevision       = 0x4C
	extInodeSize      = 0x58
	extCompat         = 0x5C
	extIncompat       = 0x60
	extROCompat       = 0x64
	extUUID           = 0x68
	extReservedGDT    = 0xCE
	extHashSeed       = 0xEC
	extDescSize       = 0xFE
	extMakeTime       = 0x108
	extBlocksHigh     = 0x150
	extWriteTimeHigh  = 0x274
	extMakeTimeHigh   = 0x276
	extCheckTimeHigh  = 0x277
	extChecksum       = 0x3FC
)

// Feature bits.
const (
	extCompatJournal      = 0x4
	extIncompatRecover    = 0x4
	extIncompatJournalDev = 0x8
	extIncompat64Bit      = 0x80
	extIncompatCsumSeed   = 0x2000
	extROCompatSparse     = 0x1
	extROCompatChecksum   = 0x400
	// The features that ext3 has; one more makes it an ext4.
	ext3Incompat = 0x2 | 0x4 | 0x10
	ext3ROCompat = 0x1 | 0x2 | 0x4
)

// castagnoli is the polynomial of all three file systems' checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extSuper is a superblock of ext2, ext3 or ext4.
type extSuper []byte

func (s extSuper) u16(offset int) uint16 { return binary.LittleEndian.Uint16(s[offset:]) }
func (s extSuper) u32(offset int) uint32 { return binary.LittleEndian.Uint32(s[offset:]) }

// valid reports whether the fields that everything else is computed from make
// sense.
func (s extSuper) valid() bool {
	blocks, ok := s.blocks()
	return s.u16(extMagic) == 0xEF53 &&
		s.u32(extLogBlockSize) <= 6 && s.u32(extRevision) <= 1 &&
		s.u32(extBlocksPerGroup) > 0 &&
		ok && blocks > int64(s.u32(extFirstBlock))
}

func (s extSuper) blockSize() int64 { return 1024 << s.u32(extLogBlockSize) }

// blocks is the size in blocks; it is false when the size in bytes is past any
// file or device.
func (s extSuper) blocks() (int64, bool) {
	blocks := uint64(s.u32(extBlocksLow))
	if s.u32(extIncompat)&extIncompat64Bit != 0 {
		blocks |= uint64(s.u32(extBlocksHigh)) << 32
	}
	high, size := bits.Mul64(blocks, uint64(s.blockSize()))
	return int64(blocks), high == 0 && size <= math.MaxInt64
}

// groups is the number of block groups.
func (s extSuper) groups() int64 {
	blocks, _ := s.blocks()
	perGroup := int64(s.u32(extBlocksPerGroup))
	return (blocks - int64(s.u32(extFirstBlock)) + perGroup - 1) / perGroup
}

// checksum is what the superblock's checksum field should hold. ext4 keeps
// crc32c without its last inversion.
func (s extSuper) checksum() uint32 { return ^crc32.Checksum(s[:extChecksum], castagnoli) }

// intact reports whether the checksum is right; a superblock without one is.
func (s extSuper) intact() bool {
	return s.u32(extROCompat)&extROCompatChecksum == 0 || s.checksum() == s.u32(extChecksum)
}

// geometry follows mke2fs and resize2fs, which drop a last group that has room
// for fewer than 50 blocks beside its own tables.
func (s extSuper) geometry() geometry {
	blockSize := s.blockSize()
	inodeSize, descSize := int64(128), int64(32)
	if s.u32(extRevision) > 0 {
		inodeSize = int64(s.u16(extInodeSize))
	}
	if s.u32(extIncompat)&extIncompat64Bit != 0 {
		descSize = int64(s.u16(extDescSize))
	}
	up := func(bytes int64) int64 { return (bytes + blockSize - 1) / blockSize }
	const bitmaps, worthwhile = 2, 50
	g := geometry{
		blockBytes:     blockSize,
		groupBlocks:    int64(s.u32(extBlocksPerGroup)),
		firstBlock:     int64(s.u32(extFirstBlock)),
		minGroupBlocks: bitmaps + up(int64(s.u32(extInodesPerGroup))*inodeSize) + worthwhile,
		// What growth adds to the descriptors it takes from the reserve.
		backupBlocks: 1 + up(s.groups()*descSize) + int64(s.u16(extReservedGDT)),
		backups:      backupsEverywhere,
	}
	if s.u32(extROCompat)&extROCompatSparse != 0 {
		g.backups = backupsSparse
	}
	return g
}

// isExt matches all members of the family.
func isExt(im image) bool {
	super := im.at(extSuperOffset, extSuperBytes)
	return super != nil && extSuper(super).valid()
}

func describeExt(im image, c *Content) {
	super := extSuper(im.at(extSuperOffset, extSuperBytes))
	incompat, roCompat := super.u32(extIncompat), super.u32(extROCompat)
	switch {
	case incompat&extIncompatJournalDev != 0:
		c.Type = "jbd"
	case incompat&^ext3Incompat != 0 || roCompat&^ext3ROCompat != 0:
		c.Type = "ext4"
	case super.u32(extCompat)&extCompatJournal != 0:
		c.Type = "ext3"
	default:
		c.Type = "ext2"
	}
	blocks, _ := super.blocks()
	c.UUID = uuid(super[extUUID : extUUID+16]).String()
	c.SizeBytes = blocks * super.blockSize()
	c.geometry = super.geometry()
	// State bit 0: unmounted cleanly; bit 1: errors were found.
	c.Clean = super.u16(extState)&3 == 1 && incompat&extIncompatRecover == 0 && super.intact()
}
