//go:build linux

package fusefile

import (
	"sync"
	"time"

	"github.com/csiemu/csiemu/backends"
)

// credit is how far a limiter may be behind its schedule, so that wake-ups that
// come late do not make it slower than it was asked to be.
const credit = 20 * time.Millisecond

// limiter spreads requests over time. Each reserves its turn when it comes, so
// that turns are exact, whoever waits how long.
type limiter struct {
	shape backends.Shaping
	// replaced is closed when another limiter takes the place of this one: who
	// waits asks that one.
	replaced chan struct{}

	mu sync.Mutex
	// operations and bytes are when the next request may begin.
	operations, bytes time.Time
}

func newLimiter(s backends.Shaping, delay time.Duration) *limiter {
	s.Latency += delay
	return &limiter{shape: s, replaced: make(chan struct{})}
}

// reserve returns when a request of so many bytes that comes now may be done.
func (l *limiter) reserve(now time.Time, bytes int64) time.Time {
	start := now
	if l.shape.IOPS > 0 || l.shape.BytesPerSecond > 0 {
		l.mu.Lock()
		l.operations = later(l.operations, now.Add(-credit))
		l.bytes = later(l.bytes, now.Add(-credit))
		start = later(start, later(l.operations, l.bytes))
		// What one of the limits allowed while the other made it wait is not
		// saved up.
		if l.shape.IOPS > 0 {
			l.operations = later(l.operations, start.Add(-credit)).Add(per(1, l.shape.IOPS))
		}
		if l.shape.BytesPerSecond > 0 {
			l.bytes = later(l.bytes, start.Add(-credit)).Add(per(bytes, l.shape.BytesPerSecond))
		}
		l.mu.Unlock()
	}
	return start.Add(l.shape.Latency)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// per is how long amount takes at so much a second.
func per(amount, rate int64) time.Duration {
	return time.Duration(float64(amount) / float64(rate) * float64(time.Second))
}
