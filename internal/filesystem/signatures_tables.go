//go:build linux

package filesystem

import "encoding/binary"

// isGPT looks for the header behind the first sector, of either size, and for
// its copy in the last one, as the first may have been overwritten.
func isGPT(im image) bool {
	for _, sector := range []int64{sectorBytes, 4096} {
		if im.has(sector, "EFI PART") || im.has(-sector, "EFI PART") {
			return true
		}
	}
	return false
}

// isDOS looks for a partition table in the first sector: the boot signature, and
// four entries that are either empty or plausible, not all of them empty.
func isDOS(im image) bool {
	sector := im.at(0, sectorBytes)
	if sector == nil || !im.has(510, "\x55\xaa") {
		return false
	}
	used := false
	for entry := 446; entry < 510; entry += 16 {
		status, kind := sector[entry], sector[entry+4]
		length := binary.LittleEndian.Uint32(sector[entry+12:])
		if status != 0 && status != 0x80 {
			return false
		}
		used = used || (kind != 0 && length != 0)
	}
	return used
}
