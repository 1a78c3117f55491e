//go:build linux

package filesystem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// identity is what makes one volume of a template differ from the next.
type identity struct {
	id uuid
	// hashSeed seeds the hashes of ext4's directories.
	hashSeed uuid
	made     time.Time
}

// newIdentity makes a random identity.
func newIdentity() identity {
	return identity{id: newUUID(), hashSeed: newUUID(), made: time.Now()}
}

// marksOf finds the superblocks of the file system of type t in a file of size
// bytes, the primary first, and whatever else carries its identity.
func marksOf(r io.ReaderAt, t Type, size int64) ([]mark, error) {
	switch t {
	case Ext4:
		return extMarks(r)
	case XFS:
		return xfsMarks(r)
	default:
		return btrfsMarks(r, size)
	}
}

// extMarks are the superblock and its backups. The checksums of all other
// metadata hang on the checksum seed, not on the UUID, thanks to the feature
// metadata_csum_seed.
func extMarks(r io.ReaderAt) ([]mark, error) {
	super, err := readExtSuper(r, extSuperOffset)
	if err != nil {
		return nil, err
	}
	geometry := super.geometry()
	marks := []mark{{extSuperOffset, extSuperBytes, stampExt}}
	for group := int64(1); group < super.groups(); group++ {
		if !geometry.backups.in(group) {
			continue
		}
		offset := (geometry.firstBlock + group*geometry.groupBlocks) * geometry.blockBytes
		if _, err := readExtSuper(r, offset); err != nil {
			return nil, err
		}
		marks = append(marks, mark{offset, extSuperBytes, stampExt})
	}
	return marks, nil
}

func readExtSuper(r io.ReaderAt, offset int64) (extSuper, error) {
	super := make(extSuper, extSuperBytes)
	if err := readFull(r, super, offset); err != nil {
		return nil, err
	}
	if !super.valid() || !super.intact() || super.u32(extIncompat)&extIncompatCsumSeed == 0 {
		return nil, fmt.Errorf("no ext4 superblock with checksum seed and right checksum at %d", offset)
	}
	return super, nil
}

func stampExt(block []byte, who identity) {
	super := extSuper(block)
	copy(super[extUUID:], who.id[:])
	copy(super[extHashSeed:], who.hashSeed[:])
	seconds := uint64(who.made.Unix())
	for _, field := range [][2]int{
		{extWriteTime, extWriteTimeHigh}, {extMakeTime, extMakeTimeHigh}, {extCheckTime, extCheckTimeHigh},
	} {
		binary.LittleEndian.PutUint32(super[field[0]:], uint32(seconds))
		super[field[1]] = byte(seconds >> 32)
	}
	binary.LittleEndian.PutUint32(super[extChecksum:], super.checksum())
}

// xfsMarks are the superblocks of all allocation groups and the header of the
// only record in the log.
func xfsMarks(r io.ReaderAt) ([]mark, error) {
	super, err := readXFSSuper(r, 0, xfsSuperBytes)
	if err != nil {
		return nil, err
	}
	sector := int64(super.u16(xfsSectorSize))
	var marks []mark
	for group := range int64(super.u32(xfsAGCount)) {
		offset := super.groupOffset(group)
		copied, err := readXFSSuper(r, offset, sector)
		if err != nil {
			return nil, err
		}
		if !copied.intact() {
			return nil, fmt.Errorf("xfs superblock at %d has a wrong checksum", offset)
		}
		marks = append(marks, mark{offset, sector, stampXFS})
	}

	header := make([]byte, xlogHeaderBytes)
	if err := readFull(r, header, super.logOffset()); err != nil {
		return nil, err
	}
	same := bytes.Equal(header[xlogUUID:xlogUUID+16], super[xfsUUID:xfsUUID+16])
	if super.u64(xfsLogStart) == 0 || binary.BigEndian.Uint32(header) != xlogMagic || !same {
		return nil, fmt.Errorf("xfs log at %d does not begin with a record of this file system", super.logOffset())
	}
	return append(marks, mark{super.logOffset(), xlogHeaderBytes, stampXFSLog}), nil
}

func readXFSSuper(r io.ReaderAt, offset, sector int64) (xfsSuper, error) {
	super := make(xfsSuper, sector)
	if err := readFull(r, super, offset); err != nil {
		return nil, err
	}
	const versionBits = 0xF
	if !super.valid() || super.u16(xfsVersion)&versionBits != 5 || super.u32(xfsIncompat)&xfsIncompatMetaUUID != 0 {
		return nil, fmt.Errorf("no fresh xfs superblock of version 5 at %d", offset)
	}
	return super, nil
}

// stampXFS gives a superblock a new UUID and says that metadata carries the old
// one.
func stampXFS(block []byte, who identity) {
	super := xfsSuper(block)
	copy(super[xfsMetaUUID:], super[xfsUUID:xfsUUID+16])
	copy(super[xfsUUID:], who.id[:])
	binary.BigEndian.PutUint32(super[xfsIncompat:], super.u32(xfsIncompat)|xfsIncompatMetaUUID)
	binary.LittleEndian.PutUint32(super[xfsChecksum:], super.checksum())
}

// stampXFSLog changes the record's UUID, which has to be that of the superblock.
// A checksum of zero is that of mkfs: not computed.
func stampXFSLog(header []byte, who identity) {
	copy(header[xlogUUID:], who.id[:])
	binary.BigEndian.PutUint32(header[xlogChecksum:], 0)
}

// btrfsMarks are the superblock and those mirrors that fit the device.
func btrfsMarks(r io.ReaderAt, size int64) ([]mark, error) {
	var marks []mark
	for _, offset := range btrfsSupers {
		if offset+btrfsSuperBytes > size {
			break
		}
		super := make(btrfsSuper, btrfsSuperBytes)
		if err := readFull(r, super, offset); err != nil {
			return nil, err
		}
		fresh := super.u64(btrfsIncompat)&btrfsIncompatMetadataUUID == 0 && super.u64(btrfsDevices) == 1
		if !super.valid(offset) || !super.intact() || !fresh {
			return nil, fmt.Errorf("btrfs superblock at %d is not a fresh one of one device with crc32c", offset)
		}
		marks = append(marks, mark{offset, btrfsSuperBytes, stampBtrfs})
	}
	return marks, nil
}

// stampBtrfs gives a superblock a new UUID and says that metadata carries the
// old one.
func stampBtrfs(block []byte, who identity) {
	super := btrfsSuper(block)
	copy(super[btrfsMetadataUUID:], super[btrfsFSID:btrfsFSID+16])
	copy(super[btrfsFSID:], who.id[:])
	binary.LittleEndian.PutUint64(super[btrfsIncompat:], super.u64(btrfsIncompat)|btrfsIncompatMetadataUUID)
	binary.LittleEndian.PutUint32(super[0:], super.checksum())
}
