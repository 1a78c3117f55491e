//go:build linux

package fusefile

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// conduct is a Behaviour at work. It is safe for concurrent use.
type conduct struct {
	gate gate
	// drained is closed when nothing is to wait any more.
	drained chan struct{}
	drain1  sync.Once

	mu  sync.Mutex
	now *acting
}

// acting is a behaviour from when it is set until another is. It is immutable
// but for its dice.
type acting struct {
	Behaviour
	limiter *limiter
	dice    []*dice // one a fault
	// replaced is closed when another behaviour is set.
	replaced chan struct{}
}

func newConduct(b Behaviour) *conduct {
	c := &conduct{drained: make(chan struct{})}
	c.now = newActing(b, newLimiter(b.Shape, b.Delay))
	return c
}

func newActing(b Behaviour, l *limiter) *acting {
	a := &acting{Behaviour: b, limiter: l, replaced: make(chan struct{})}
	for _, f := range b.Faults {
		a.dice = append(a.dice, newDice(f))
	}
	return a
}

// behave replaces the behaviour, for requests that wait too. One with the same
// shape goes on where the old one was in its schedule.
func (c *conduct) behave(b Behaviour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.now
	l := old.limiter
	if b.Shape != old.Shape || b.Delay != old.Delay {
		l = newLimiter(b.Shape, b.Delay)
		defer close(old.limiter.replaced)
	}
	c.now = newActing(b, l)
	close(old.replaced)
}

func (c *conduct) acting() *acting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// drain lets everything that waits go on, and nothing wait any more. Errors and
// corruption stay.
func (c *conduct) drain() {
	c.drain1.Do(func() { close(c.drained) })
	c.gate.drain()
}

// verdict is what is to become of a request.
type verdict struct {
	errno   syscall.Errno
	corrupt []Fault
	torn    *Fault
}

// meet makes a request wait as long as it has to and says what becomes of it.
// EINTR is returned when cancel is closed first.
func (c *conduct) meet(k kind, offset, length int64, cancel <-chan struct{}) (verdict, error) {
	if k != flushing {
		if err := c.shape(length, cancel); err != nil {
			return verdict{}, err
		}
	}
	for {
		a := c.acting()
		v, hangs := a.judge(k, offset, length)
		if !hangs || isClosed(c.drained) {
			return v, nil
		}
		select {
		case <-a.replaced:
		case <-c.drained:
		case <-cancel:
			return verdict{}, syscall.EINTR
		}
	}
}

// shape waits until it is the turn of a request.
func (c *conduct) shape(length int64, cancel <-chan struct{}) error {
	for {
		l := c.acting().limiter
		wait := time.Until(l.reserve(time.Now(), length))
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			return nil
		case <-c.drained:
			timer.Stop()
			return nil
		case <-cancel:
			timer.Stop()
			return syscall.EINTR
		case <-l.replaced:
			timer.Stop()
		}
	}
}

func (a *acting) judge(k kind, offset, length int64) (v verdict, hangs bool) {
	for i, f := range a.Faults {
		if !f.concerns(k, offset, length) || !a.dice[i].fall() {
			continue
		}
		switch {
		case f.Hang:
			hangs = true
		case f.Errno != 0 && v.errno == 0:
			v.errno = f.Errno
		case f.Corrupt && k == reading:
			v.corrupt = append(v.corrupt, f)
		case f.Torn && k == writing && v.torn == nil:
			v.torn = &f
		}
	}
	return v, hangs
}

// dice decide whether a fault concerns a request.
type dice struct {
	probability float64
	mu          sync.Mutex
	source      *rand.Rand
}

func newDice(f Fault) *dice {
	return &dice{probability: f.Probability, source: rand.New(rand.NewPCG(f.Seed, f.Seed))}
}

func (d *dice) fall() bool {
	if d.probability == 0 || d.probability == 1 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Float64() < d.probability
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sectorBytes is the unit in which corruption flips bits.
const sectorBytes = 512

// corrupt flips one bit in each sector of the range of f that data, which was
// read at offset, has any bytes of. Which one depends on sector and seed alone.
func corrupt(f Fault, data []byte, offset int64) {
	end := offset + int64(len(data))
	for sector := offset / sectorBytes; sector*sectorBytes < end; sector++ {
		if !f.touches(sector*sectorBytes, sectorBytes) {
			continue
		}
		source := rand.NewPCG(f.Seed, uint64(sector)).Uint64()
		// The range may begin or end within the sector.
		first, behind := max(sector*sectorBytes, f.Offset), (sector+1)*sectorBytes
		if f.Length > 0 {
			behind = min(behind, f.Offset+f.Length)
		}
		at := first + int64(source%uint64(behind-first))
		if at >= offset && at < end {
			data[at-offset] ^= 1 << (source >> 16 % 8)
		}
	}
}
