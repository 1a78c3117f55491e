//go:build linux

package filesystem

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// Offsets in a superblock of xfs, all fields big endian but the checksum
// (fs/xfs/libxfs/xfs_format.h, struct xfs_dsb). Its first sector is the
// device's.
const (
	xfsBlockSize  = 4
	xfsBlocks     = 8
	xfsUUID       = 32
	xfsLogStart   = 48
	xfsAGBlocks   = 84
	xfsAGCount    = 88
	xfsVersion    = 100
	xfsSectorSize = 102
	xfsAGBlockLog = 124
	xfsIncompat   = 216
	xfsChecksum   = 224
	xfsMetaUUID   = 248
	xfsSuperBytes = 512 // the least sector

	// xfsIncompatMetaUUID says that metadata carries sb_meta_uuid.
	xfsIncompatMetaUUID = 1 << 2
	// xfsMinAGBlocks is XFS_MIN_AG_BLOCKS: growth drops a shorter last group.
	xfsMinAGBlocks = 64
)

// Offsets in the header of a log record (struct xlog_rec_header).
const (
	xlogMagic       = 0xFEEDbabe
	xlogChecksum    = 32
	xlogUUID        = 304
	xlogHeaderBytes = 512
)

// xfsSuper is a superblock sector of xfs.
type xfsSuper []byte

func (s xfsSuper) u16(offset int) uint16 { return binary.BigEndian.Uint16(s[offset:]) }
func (s xfsSuper) u32(offset int) uint32 { return binary.BigEndian.Uint32(s[offset:]) }
func (s xfsSuper) u64(offset int) uint64 { return binary.BigEndian.Uint64(s[offset:]) }

// valid reports whether the fields that everything else is computed from make
// sense.
func (s xfsSuper) valid() bool {
	block, sector := s.u32(xfsBlockSize), s.u16(xfsSectorSize)
	high, size := bits.Mul64(s.u64(xfsBlocks), uint64(block))
	return string(s[:4]) == "XFSB" &&
		bits.OnesCount32(block) == 1 && block >= 512 && block <= 65536 &&
		bits.OnesCount16(sector) == 1 && sector >= 512 && uint32(sector) <= block &&
		s.u32(xfsAGBlocks) > 0 && s.u32(xfsAGCount) > 0 && s[xfsAGBlockLog] < 32 &&
		high == 0 && size > 0 && size <= math.MaxInt64
}

// intact reports whether the checksum of a version 5 superblock is right. The
// slice must be the whole sector.
func (s xfsSuper) intact() bool {
	return s.checksum() == binary.LittleEndian.Uint32(s[xfsChecksum:])
}

// checksum is crc32c over the sector with the checksum's own field zero.
func (s xfsSuper) checksum() uint32 {
	sum := crc32.Checksum(s[:xfsChecksum], castagnoli)
	sum = crc32.Update(sum, castagnoli, zeros[:4])
	return crc32.Update(sum, castagnoli, s[xfsChecksum+4:])
}

// groupOffset is where an allocation group begins, in bytes.
func (s xfsSuper) groupOffset(group int64) int64 {
	return group * int64(s.u32(xfsAGBlocks)) * int64(s.u32(xfsBlockSize))
}

// logOffset is where the internal log begins, in bytes. Block numbers of xfs
// have the group in their upper bits.
func (s xfsSuper) logOffset() int64 {
	start, shift := s.u64(xfsLogStart), s[xfsAGBlockLog]
	inGroup := start & (1<<shift - 1)
	return s.groupOffset(int64(start>>shift)) + int64(inGroup)*int64(s.u32(xfsBlockSize))
}

func isXFS(im image) bool {
	super := im.at(0, xfsSuperBytes)
	return super != nil && xfsSuper(super).valid()
}

func describeXFS(im image, c *Content) {
	super := xfsSuper(im.at(0, xfsSuperBytes))
	c.UUID = uuid(super[xfsUUID : xfsUUID+16]).String()
	c.SizeBytes = int64(super.u64(xfsBlocks)) * int64(super.u32(xfsBlockSize))
	c.geometry = xfsGeometry(super.u32(xfsBlockSize), super.u32(xfsAGBlocks))
}

// xfsGeometry is the geometry of an xfs with these units.
func xfsGeometry(blockSize, groupBlocks uint32) geometry {
	return geometry{
		blockBytes:     int64(blockSize),
		groupBlocks:    int64(groupBlocks),
		minGroupBlocks: xfsMinAGBlocks,
	}
}
