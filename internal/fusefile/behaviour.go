//go:build linux

package fusefile

import (
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/csiemu/csiemu/backends"
)

// Behaviour is how a holder treats I/O on its file. It is one value, set as a
// whole; the zero value does what a disk does.
type Behaviour struct {
	// Shape is how slow the file is. One request to it is at most MaxIOBytes.
	Shape backends.Shaping `json:"shape"`
	// Delay is added to each request besides the shape's latency: a fault, which
	// a change of the shape leaves alone.
	Delay time.Duration `json:"delay,omitempty"`
	// Faults are what goes wrong. Each request is looked at with each of them:
	// all that hang come first, then the first error wins, then every corruption
	// and the first torn write apply.
	Faults []Fault `json:"faults,omitempty"`
}

// MaxIOBytes is the largest request that the kernel sends in one piece, and what
// counts as one operation for Shaping.IOPS.
const MaxIOBytes = 1 << 20

// Fault is one thing that goes wrong with the requests that it concerns.
type Fault struct {
	// Reads, Writes and Flushes are the requests that it concerns. Discards and
	// zeroing count as writes.
	Reads   bool `json:"reads,omitempty"`
	Writes  bool `json:"writes,omitempty"`
	Flushes bool `json:"flushes,omitempty"`
	// Offset and Length are a range of bytes: reads and writes that touch it are
	// concerned. Length 0 is up to the end, also of a file that grows.
	Offset int64 `json:"offset,omitempty"`
	Length int64 `json:"length,omitempty"`
	// Probability is that of each request to be concerned; 0 means 1. Seed
	// makes the choice the same each time.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	// Exactly one of these says what happens.

	// Hang makes requests wait until there is another Behaviour, with which they
	// are looked at again.
	Hang bool `json:"hang,omitempty"`
	// Errno fails requests. A loop device turns most errors into EIO.
	Errno syscall.Errno `json:"errno,omitempty"`
	// Corrupt flips one bit in each 512 bytes that are read, the same ones each
	// time. What is stored stays whole.
	Corrupt bool `json:"corrupt,omitempty"`
	// Torn writes only the first Keep bytes, and says that all were written.
	Torn bool  `json:"torn,omitempty"`
	Keep int64 `json:"keep,omitempty"`
}

// Check returns backends.ErrInvalid for a behaviour that means nothing.
func (b Behaviour) Check() error {
	if b.Shape.IOPS < 0 || b.Shape.BytesPerSecond < 0 || b.Shape.Latency < 0 || b.Delay < 0 {
		return fmt.Errorf("shape %+v with delay %s is negative: %w", b.Shape, b.Delay, backends.ErrInvalid)
	}
	for i, f := range b.Faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	return nil
}

func (f Fault) check() error {
	effects := 0
	for _, has := range []bool{f.Hang, f.Errno != 0, f.Corrupt, f.Torn} {
		if has {
			effects++
		}
	}
	switch {
	case effects != 1:
		return fmt.Errorf("it has %d effects of hang, errno, corrupt and torn, not one: %w", effects, backends.ErrInvalid)
	case !f.Reads && !f.Writes && !f.Flushes:
		return fmt.Errorf("it concerns no requests: %w", backends.ErrInvalid)
	case f.Corrupt && !f.Reads:
		return fmt.Errorf("only what is read can be corrupt: %w", backends.ErrInvalid)
	case f.Torn && !f.Writes:
		return fmt.Errorf("only writes can be torn: %w", backends.ErrInvalid)
	case f.Offset < 0 || f.Length < 0 || f.Keep < 0:
		return fmt.Errorf("a range is negative: %w", backends.ErrInvalid)
	case f.Offset > math.MaxInt64-f.Length:
		return fmt.Errorf("a range of %d bytes from %d on has no end: %w", f.Length, f.Offset, backends.ErrInvalid)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("probability %v is not between 0 and 1: %w", f.Probability, backends.ErrInvalid)
	}
	return nil
}

// kind is what a request does.
type kind int

const (
	reading kind = iota
	writing
	flushing
)

// concerns says whether f is about such a request at such a place.
func (f Fault) concerns(k kind, offset, length int64) bool {
	switch k {
	case reading:
		return f.Reads && f.touches(offset, length)
	case writing:
		return f.Writes && f.touches(offset, length)
	default:
		return f.Flushes
	}
}

func (f Fault) touches(offset, length int64) bool {
	return offset+length > f.Offset && (f.Length == 0 || offset < f.Offset+f.Length)
}
