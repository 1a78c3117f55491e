//go:build linux

package filesystem

import (
	"context"
	"errors"
	"os"
)

// ErrCut is what a format meets that a test stops.
var ErrCut = errors.New("cut by the test")

// Cut says where a format is stopped, as if the process were killed there.
type Cut struct {
	// Writes is how many writes are done whole.
	Writes int
	// TornSectors is how many sectors of the next write reach the device.
	TornSectors int
	// Zeroing stops the discard of an interrupted format in its middle.
	Zeroing bool
}

// cutTarget is a device that stops working.
type cutTarget struct {
	*device
	cut  Cut
	done int
	dead bool
}

func (c *cutTarget) WriteAt(b []byte, offset int64) (int, error) {
	if c.dead {
		return 0, ErrCut
	}
	if c.done == c.cut.Writes {
		c.dead = true
		torn := min(len(b), c.cut.TornSectors*sectorBytes)
		if _, err := c.device.WriteAt(b[:torn], offset); err != nil {
			return 0, err
		}
		return 0, ErrCut
	}
	c.done++
	return c.device.WriteAt(b, offset)
}

func (c *cutTarget) Zero(ctx context.Context, offset, length int64) error {
	if c.dead {
		return ErrCut
	}
	if c.cut.Zeroing {
		c.dead = true
		return errors.Join(ErrCut, c.device.Zero(ctx, offset, length/2))
	}
	return c.device.Zero(ctx, offset, length)
}

func (c *cutTarget) Settle() error {
	if c.dead {
		return ErrCut
	}
	return c.device.Settle()
}

func (c *cutTarget) Sync() error {
	if c.dead {
		return ErrCut
	}
	return nil // nothing is lost in a test but what is cut
}

// FormatCut is Format with an end at the given place: ErrCut, or nil if the
// format needs no more writes than that.
func (m *Maker) FormatCut(ctx context.Context, path string, t Type, size int64, sync bool, cut Cut) error {
	dev, err := openDevice(ctx, path)
	if err != nil {
		return err
	}
	defer dev.Close()
	_, err = m.format(ctx, &cutTarget{device: dev, cut: cut}, shape{t, size, dev.sector}, sync)
	return err
}

// Range is a range of data that a format writes.
type Range struct {
	Offset int64
	Data   []byte
}

// Ranges are the ranges that Format writes, but for the mark, in its order.
func (m *Maker) Ranges(ctx context.Context, t Type, size, sector int64) ([]Range, error) {
	made, err := m.template(ctx, shape{t, size, sector})
	if err != nil {
		return nil, err
	}
	var ranges []Range
	for _, p := range append(made.body[:len(made.body):len(made.body)], made.primary) {
		ranges = append(ranges, Range{p.offset, p.data})
	}
	if made.boot != nil {
		ranges = append(ranges, Range{0, made.boot})
	}
	return ranges, nil
}

// Kept is how many templates are kept, and how many bytes they take.
func (m *Maker) Kept() (count int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kept), m.bytes
}

// Identify is Probe of a device with this head, tail and size.
func Identify(head, tail []byte, size int64) Content {
	return image{head: head, tail: tail, size: size}.identify()
}

// What Probe reads.
const (
	HeadBytes = headBytes
	TailBytes = tailBytes
)

// DataExtents are start and end of the ranges of a sparse file that hold data.
func DataExtents(file *os.File, size int64) ([][2]int64, error) {
	extents, err := dataExtents(file, size)
	var pairs [][2]int64
	for _, e := range extents {
		pairs = append(pairs, [2]int64{e.offset, e.end})
	}
	return pairs, err
}
