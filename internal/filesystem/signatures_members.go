//go:build linux

package filesystem

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// describeLUKS adds the UUID, which both formats keep as text.
func describeLUKS(im image, c *Content) {
	if field := im.at(168, 40); field != nil {
		text, _, _ := bytes.Cut(field, []byte{0})
		c.UUID = strings.ToLower(string(bytes.ToValidUTF8(text, nil)))
	}
}

// isLVM2 looks for a label in the first four sectors.
func isLVM2(im image) bool {
	for sector := range int64(4) {
		if im.has(sector*sectorBytes, "LABELONE") && im.has(sector*sectorBytes+24, "LVM2 001") {
			return true
		}
	}
	return false
}

// isMD looks for a member of a Linux RAID. Formats 1.0 and 0.90 lie at the end,
// where a file system may have data of its own, so the superblock must say that
// it belongs there.
func isMD(im image) bool {
	const magicV1 = "\xfc\x4e\x2b\xa9"
	sectors := im.size / sectorBytes
	for _, sector := range []int64{0, 8, (sectors - 16) &^ 7} {
		super := im.at(sector*sectorBytes, 256)
		if super == nil || !im.has(sector*sectorBytes, magicV1) {
			continue
		}
		major := binary.LittleEndian.Uint32(super[4:])
		where := binary.LittleEndian.Uint64(super[144:])
		if major == 1 && where == uint64(sector) {
			return true
		}
	}
	const reserved = 64 << 10
	if im.size < 2*reserved {
		return false
	}
	super := im.at(im.size&^(reserved-1)-reserved, 12)
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if super != nil && order.Uint32(super) == 0xa92b4efc && order.Uint32(super[4:]) == 0 && order.Uint32(super[8:]) >= 90 {
			return true
		}
	}
	return false
}

// isZFS wants both the list of names that opens a label and one uberblock: the
// ring of uberblocks alone lies where other file systems may have data.
func isZFS(im image) bool {
	const nvlist, ring = 16 << 10, 128 << 10
	if names := im.at(nvlist, 64); names == nil || !bytes.Contains(names, []byte("version")) {
		return false
	}
	for offset := int64(ring); offset < 2*ring; offset += 1 << 10 {
		if im.has(offset, "\x0c\xb1\xba\x00\x00\x00\x00\x00") || im.has(offset, "\x00\x00\x00\x00\x00\xba\xb1\x0c") {
			return true
		}
	}
	return false
}

// isStratis looks at both copies of the static header.
func isStratis(im image) bool {
	const mark = "!Stra0tis\x86\xff\x02^\x41rh"
	return im.has(1*sectorBytes+4, mark) || im.has(9*sectorBytes+4, mark)
}
