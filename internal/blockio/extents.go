//go:build linux

package blockio

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// Extents yields the ranges of f that hold data and end after from: ascending,
// not touching each other, rounded outward to backends.Granularity but never
// past the end of f. The first one starts no earlier than from, rounded down.
//
// A store may report a hole as data (one that cannot tell reports the whole
// file), never data as a hole. After an error, which includes that of ctx, the
// sequence ends.
func Extents(ctx context.Context, f *os.File, from int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		err := eachExtent(ctx, f, from, func(e Extent) bool { return yield(e, nil) })
		if err != nil {
			yield(Extent{}, fmt.Errorf("find data in %s: %w", f.Name(), err))
		}
	}
}

func eachExtent(ctx context.Context, f *os.File, from int64, yield func(Extent) bool) error {
	size, err := sizeOf(f)
	if err != nil {
		return err
	}
	m := merger{yield: yield}
	for pos := alignDown(from); pos < size && !m.stopped; {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, found, err := dataFrom(f, pos, size)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		m.add(e)
		pos = end(e)
	}
	m.flush()
	return nil
}

// dataFrom finds the first range at or after pos that holds data.
func dataFrom(f *os.File, pos, size int64) (e Extent, found bool, err error) {
	if pos >= size {
		return Extent{}, false, nil
	}
	start, err := f.Seek(pos, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but a hole up to the end
		return Extent{}, false, nil
	}
	if err != nil {
		return Extent{}, false, err
	}
	if start >= size { // the file grew after it was measured
		return Extent{}, false, nil
	}
	stop, err := f.Seek(start, unix.SEEK_HOLE)
	if errors.Is(err, unix.ENXIO) { // the file shrank meanwhile
		return Extent{}, false, nil
	}
	if err != nil {
		return Extent{}, false, err
	}
	start = max(alignDown(start), pos)
	stop = min(alignUp(stop), size)
	return Extent{Offset: start, Length: stop - start}, true, nil
}

// dataCursor finds the data of a file along positions that only go up. It asks
// again only when what it found last is passed: to find the end of data the
// kernel walks through all of it.
type dataCursor struct {
	file  *os.File
	limit int64
	// last is what was found last, asked whether that was ever.
	last         Extent
	asked, found bool
}

// from returns the first range at or after pos, and before limit, that holds
// data.
func (d *dataCursor) from(pos int64) (Extent, bool, error) {
	if !d.asked || d.found && end(d.last) <= pos {
		var err error
		if d.last, d.found, err = dataFrom(d.file, pos, d.limit); err != nil {
			return Extent{}, false, err
		}
		d.asked = true
	}
	start := max(d.last.Offset, pos)
	return Extent{Offset: start, Length: end(d.last) - start}, d.found, nil
}

// merger joins ranges that touch or overlap. Ranges are added in ascending
// order of their start.
type merger struct {
	yield   func(Extent) bool
	pending Extent
	stopped bool
}

func (m *merger) add(e Extent) {
	if m.pending.Length > 0 && e.Offset <= end(m.pending) {
		m.pending.Length = max(end(m.pending), end(e)) - m.pending.Offset
		return
	}
	m.flush()
	m.pending = e
}

func (m *merger) flush() {
	if m.pending.Length > 0 && !m.stopped {
		m.stopped = !m.yield(m.pending)
	}
	m.pending = Extent{}
}

func end(e Extent) int64 { return e.Offset + e.Length }

func alignDown(n int64) int64 { return max(n, 0) / backends.Granularity * backends.Granularity }

func alignUp(n int64) int64 { return alignDown(n + backends.Granularity - 1) }

func sizeOf(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
