//go:build linux

package filesystem

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/csiemu/csiemu/backends"
)

// blockBytes is the unit in which a template looks for data. It is the unit of
// volume sizes and the block size of most file systems.
const blockBytes = backends.Granularity

// template is a file system as mkfs made it: everything that is not zero. It is
// not changed after it was made, so any number of formats may use it at once.
type template struct {
	// body is written first, in this order; pieces do not overlap.
	body []piece
	// primary is the superblock that makes the device a file system.
	primary piece
	// boot is the first sector, which gives way to the mark while the format is
	// under way. It is nil where the primary superblock lies in that sector.
	boot []byte
	// bytes is what all of it takes in memory.
	bytes int64
}

// piece is a range of data.
type piece struct {
	offset int64
	data   []byte
	// stamp puts a volume's identity into a copy of the data; nil where there
	// is none.
	stamp func([]byte, identity)
}

func (p piece) end() int64 { return p.offset + int64(len(p.data)) }

// bytesFor is the data for one volume.
func (p piece) bytesFor(id identity) []byte {
	if p.stamp == nil {
		return p.data
	}
	stamped := slices.Clone(p.data)
	p.stamp(stamped, id)
	return stamped
}

// mark is a range that differs between two volumes of one template.
type mark struct {
	offset, length int64
	stamp          func([]byte, identity)
}

// newTemplate cuts the data that mkfs wrote, in ascending order, at the marks.
// The first mark is the primary superblock.
func newTemplate(data []piece, marks []mark) (*template, error) {
	t := &template{}
	primary, superblocks := marks[0], len(marks)
	if primary.offset > 0 {
		// What mkfs left in the first sector, which may be nothing.
		t.boot = make([]byte, sectorBytes)
		marks = append(slices.Clone(marks), mark{offset: 0, length: sectorBytes})
	}
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.offset, b.offset) })

	found := 0
	for _, rest := range data {
		t.bytes += int64(len(rest.data))
		for _, m := range marks {
			if m.offset < rest.offset || m.offset >= rest.end() {
				continue
			}
			if m.offset+m.length > rest.end() {
				return nil, fmt.Errorf("superblock at %d is not whole", m.offset)
			}
			before, marked, after := rest.cut(m)
			t.add(before)
			switch m.offset {
			case primary.offset:
				t.primary = marked
				found++
			case 0:
				t.boot = marked.data
			default:
				t.body = append(t.body, marked)
				found++
			}
			rest = after
		}
		t.add(rest)
	}
	if found != superblocks {
		return nil, fmt.Errorf("mkfs wrote %d of %d superblocks", found, superblocks)
	}
	return t, nil
}

// cut divides a piece into what is before, in and behind a mark.
func (p piece) cut(m mark) (before, marked, after piece) {
	from, to := m.offset-p.offset, m.offset-p.offset+m.length
	return piece{offset: p.offset, data: p.data[:from]},
		piece{offset: m.offset, data: p.data[from:to], stamp: m.stamp},
		piece{offset: m.offset + m.length, data: p.data[to:]}
}

// add appends a piece to the body, unless it is empty.
func (t *template) add(p piece) {
	if len(p.data) > 0 {
		t.body = append(t.body, p)
	}
}

// readData reads all blocks of a file that are not zero, joined where they touch.
func readData(r io.ReaderAt, extents []extent) ([]piece, error) {
	var data []piece
	buffer := make([]byte, 256<<10)
	for _, e := range extents {
		for offset := e.offset; offset < e.end; {
			chunk := buffer[:min(int64(len(buffer)), e.end-offset)]
			if err := readFull(r, chunk, offset); err != nil {
				return nil, err
			}
			for block := range slices.Chunk(chunk, blockBytes) {
				if !isZero(block) {
					data = appendBlock(data, offset, block)
				}
				offset += int64(len(block))
			}
		}
	}
	return data, nil
}

// appendBlock joins a block to the last piece if it follows it and the piece does
// not become too long to be read back at once.
func appendBlock(data []piece, offset int64, block []byte) []piece {
	if last := len(data) - 1; last >= 0 && data[last].end() == offset && len(data[last].data) < readBackBytes {
		data[last].data = append(data[last].data, block...)
		return data
	}
	return append(data, piece{offset: offset, data: slices.Clone(block)})
}
