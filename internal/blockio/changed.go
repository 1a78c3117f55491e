//go:build linux

package blockio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/csiemu/csiemu/backends"
)

// Changed yields the ranges of target whose bytes are not those of base and
// that end after from: ascending, not touching each other, in whole blocks of
// backends.Granularity, but never past the end of target. The first one starts
// no earlier than from, rounded down. Where target is longer than base, all of
// its data behind the end of base counts as changed.
//
// The answer does not depend on the store, only the time does: blocks that both
// files share, or that are holes in both, are skipped, everything else is read
// and compared. Both files must be held still. After an error, which includes
// that of ctx, the sequence ends.
func Changed(ctx context.Context, base, target *os.File, from int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		c := comparison{base: base, target: target, out: merger{yield: func(e Extent) bool { return yield(e, nil) }}}
		err := c.run(ctx, alignDown(from))
		if err != nil && !c.out.stopped {
			yield(Extent{}, fmt.Errorf("compare %s with %s: %w", target.Name(), base.Name(), err))
		}
	}
}

type comparison struct {
	base, target *os.File
	// baseSize and targetSize are the files' sizes in bytes.
	baseSize, targetSize int64
	shared               sharing
	out                  merger
	a, b                 []byte
}

func (c *comparison) run(ctx context.Context, from int64) (err error) {
	if c.baseSize, err = sizeOf(c.base); err != nil {
		return err
	}
	if c.targetSize, err = sizeOf(c.target); err != nil {
		return err
	}
	if c.shared, err = newSharing(ctx, c.base, c.target, from); err != nil {
		return err
	}
	c.a, c.b = make([]byte, bufferBytes), make([]byte, bufferBytes)
	if c.baseSize >= c.targetSize {
		err = c.compareCommon(ctx, from, c.targetSize)
	} else {
		err = c.compareGrown(ctx, from)
	}
	if err == nil {
		c.out.flush()
	}
	return err
}

// compareGrown compares with a base that is shorter. Only its whole blocks can
// be compared.
func (c *comparison) compareGrown(ctx context.Context, from int64) error {
	common := alignDown(c.baseSize)
	if err := c.compareCommon(ctx, from, common); err != nil {
		return err
	}
	return eachExtent(ctx, c.target, max(from, common), func(e Extent) bool {
		c.out.add(e)
		return !c.out.stopped
	})
}

// compareCommon looks at all ranges up to limit that hold data in either file.
func (c *comparison) compareCommon(ctx context.Context, pos, limit int64) error {
	base, target := dataCursor{file: c.base, limit: limit}, dataCursor{file: c.target, limit: limit}
	for pos < limit && !c.out.stopped {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, found, err := target.from(pos)
		if err != nil {
			return err
		}
		other, otherFound, err := base.from(pos)
		if err != nil {
			return err
		}
		if !found || otherFound && other.Offset < e.Offset {
			e, found = other, otherFound
		}
		if !found {
			return nil
		}
		if err := c.compareUnshared(ctx, e); err != nil {
			return err
		}
		pos = end(e)
	}
	return nil
}

// compareUnshared compares those parts of e that the files do not share.
func (c *comparison) compareUnshared(ctx context.Context, e Extent) error {
	for e.Length > 0 && !c.out.stopped {
		same, found, err := c.shared.from(ctx, e.Offset)
		if err != nil {
			return err
		}
		if !found || same.Offset >= end(e) {
			return c.compareBytes(ctx, e)
		}
		if err := c.compareBytes(ctx, Extent{Offset: e.Offset, Length: same.Offset - e.Offset}); err != nil {
			return err
		}
		next := min(end(same), end(e))
		e = Extent{Offset: next, Length: end(e) - next}
	}
	return nil
}

// compareBytes reads e, which starts at a block, from both files.
func (c *comparison) compareBytes(ctx context.Context, e Extent) error {
	for e.Length > 0 && !c.out.stopped {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(e.Length, bufferBytes))
		a, b := c.a[:n], c.b[:n]
		if err := readFull(c.base, a, e.Offset); err != nil {
			return err
		}
		if err := readFull(c.target, b, e.Offset); err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			c.addBlocks(a, b, e.Offset)
		}
		e.Offset += int64(n)
		e.Length -= int64(n)
	}
	return nil
}

func (c *comparison) addBlocks(a, b []byte, offset int64) {
	for i := 0; i < len(a) && !c.out.stopped; i += backends.Granularity {
		j := min(i+backends.Granularity, len(a))
		if !bytes.Equal(a[i:j], b[i:j]) {
			c.out.add(Extent{Offset: offset + int64(i), Length: int64(j - i)})
		}
	}
}

func readFull(f *os.File, p []byte, offset int64) error {
	n, err := f.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return fmt.Errorf("%s ends before byte %d: %w", f.Name(), offset+int64(len(p)), io.ErrUnexpectedEOF)
	}
	return err
}
