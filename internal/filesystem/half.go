//go:build linux

package filesystem

import (
	"context"
	"fmt"
)

// sectorBytes is what a device writes whole or not at all, at the least.
const sectorBytes = 512

// halfMark is the text of the mark. It stands alone in the first sector from
// before the first other byte of a format is written until after the last one
// is, so a device that carries it holds nothing but what a format wrote.
const halfMark = "csiemu half format\n"

// halfSector is the first sector of a device that is being formatted.
func halfSector() []byte {
	sector := make([]byte, sectorBytes)
	copy(sector, halfMark)
	return sector
}

// isHalf reports whether the device carries the mark and nothing else in its
// first sector.
func (im image) isHalf() bool {
	sector := im.at(0, sectorBytes)
	return sector != nil && im.has(0, halfMark) && isZero(sector[len(halfMark):])
}

// discardHalf makes everything behind the mark of an interrupted format read as zeros.
// The mark stays, so that a second interruption is known as well.
func discardHalf(ctx context.Context, dev target) error {
	if err := dev.Zero(ctx, sectorBytes, dev.Size()-sectorBytes); err != nil {
		return fmt.Errorf("discard an interrupted format: %w", err)
	}
	var blank bool
	err := look(dev, dev.Size(), func(im image) { blank = im.isHalf() && im.isBlank(sectorBytes) })
	if err != nil {
		return fmt.Errorf("discard an interrupted format: %w", err)
	}
	if !blank {
		return fmt.Errorf("discard an interrupted format: %w: the device keeps what was discarded", ErrNotBlank)
	}
	return nil
}
