//go:build linux

package filesystem

import (
	"bytes"
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

const (
	// readBackBytes is the longest piece, and how much is read back at once.
	readBackBytes = 1 << 20
	// readBackGap is what is read in vain rather than ask a second time.
	readBackGap = 64 << 10
)

// verify makes sure that the device has the body. Flushing says so, but not from
// a loop device of Linux 6.15 or newer whose store became full within one
// request: the kernel takes the short write for a success.
func (t *template) verify(ctx context.Context, dev target, who identity) error {
	buffer := takeBuffer()
	defer buffer.giveBack()
	for rest := t.body; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, end, count := nextReadBack(rest, dev.Size())
		got := buffer.first(end - start)
		if err := readFull(dev, got, start); err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
		for _, p := range rest[:count] {
			if !bytes.Equal(p.bytesFor(who), got[p.offset-start:p.end()-start]) {
				return fmt.Errorf("%w: the device did not keep all of %d bytes at %d, its store may be full",
					backends.ErrExhausted, len(p.data), p.offset)
			}
		}
		rest = rest[count:]
	}
	return nil
}

// nextReadBack is the range to read for the first pieces, in whole blocks, and
// how many pieces it covers.
func nextReadBack(pieces []piece, size int64) (start, end int64, count int) {
	start = pieces[0].offset / blockBytes * blockBytes
	for _, p := range pieces {
		pieceEnd := min(size, (p.end()+blockBytes-1)/blockBytes*blockBytes)
		if count > 0 && (p.offset-end > readBackGap || pieceEnd-start > readBackBytes) {
			break
		}
		end = pieceEnd
		count++
	}
	return start, end, count
}
