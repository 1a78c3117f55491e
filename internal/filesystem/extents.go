//go:build linux

package filesystem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// extent is a range of a file that holds data.
type extent struct{ offset, end int64 }

// dataExtents are the ranges of a sparse file that may hold something other than
// zeros, in whole blocks, ascending and not overlapping.
func dataExtents(file *os.File, size int64) ([]extent, error) {
	var extents []extent
	for offset := int64(0); offset < size; {
		start, err := file.Seek(offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return extents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("find data behind %d: %w", offset, err)
		}
		end, err := file.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("find a hole behind %d: %w", start, err)
		}
		start = start / blockBytes * blockBytes
		offset = min(size, (end+blockBytes-1)/blockBytes*blockBytes)
		extents = append(extents, extent{start, offset})
	}
	return extents, nil
}
