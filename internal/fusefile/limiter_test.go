//go:build linux

package fusefile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

func TestALimiterGivesEachRequestItsTurn(t *testing.T) {
	t.Parallel()
	const requests = 1000
	for name, c := range map[string]struct {
		shape backends.Shaping
		bytes int64
		// late is how much later than its turn each request is done, as by a
		// timer that is not exact. The next one comes then.
		late time.Duration
		want time.Duration
	}{
		"no limit":                     {want: 0},
		"operations":                   {shape: backends.Shaping{IOPS: 100}, bytes: 4096, want: 10 * time.Second},
		"operations, late":             {shape: backends.Shaping{IOPS: 100}, bytes: 4096, late: 3 * time.Millisecond, want: 10 * time.Second},
		"many operations, late":        {shape: backends.Shaping{IOPS: 4000}, bytes: 4096, late: 100 * time.Microsecond, want: 250 * time.Millisecond},
		"bytes":                        {shape: backends.Shaping{BytesPerSecond: 1 << 20}, bytes: 1 << 20, want: 1000 * time.Second},
		"bytes before operations":      {shape: backends.Shaping{IOPS: 1000, BytesPerSecond: 1 << 20}, bytes: 1 << 20, want: 1000 * time.Second},
		"operations before bytes":      {shape: backends.Shaping{IOPS: 10, BytesPerSecond: 1 << 30}, bytes: 4096, want: 100 * time.Second},
		"a delay, each after the last": {shape: backends.Shaping{Latency: time.Millisecond}, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(c.shape, 0)
			start := time.Now()
			now := start
			for range requests {
				now = later(now, l.reserve(now, c.bytes)).Add(c.late)
			}
			slack := c.want/100 + credit + c.late
			require.InDelta(t, float64(c.want), float64(now.Sub(start)), float64(slack))
		})
	}
}

func TestALimiterSavesUpNoMoreThanItsCredit(t *testing.T) {
	t.Parallel()
	l := newLimiter(backends.Shaping{IOPS: 100}, 0)
	now := time.Now()
	l.reserve(now, 4096)
	now = now.Add(time.Hour)
	at := now
	for range 100 {
		at = l.reserve(now, 4096)
	}
	require.InDelta(t, float64(time.Second), float64(at.Sub(now)), float64(2*credit))
}
