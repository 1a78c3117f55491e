//go:build linux

package loop_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
)

// readsFor reads blocks from a device, several at once, for a time, and returns
// how many of them it read.
func readsFor(t *testing.T, device *os.File, blockBytes, depth int, length time.Duration) int64 {
	t.Helper()
	var reads atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var workers sync.WaitGroup
	for range depth {
		workers.Go(func() {
			for block := aligned(blockBytes); ctx.Err() == nil; {
				if _, err := device.ReadAt(block, 0); !assert.NoError(t, err) {
					return
				}
				reads.Add(1)
			}
		})
	}
	workers.Wait()
	return reads.Load()
}

func TestShapeLimitsWhatADeviceDoes(t *testing.T) {
	t.Parallel()
	const length = 2 * time.Second
	for name, c := range map[string]struct {
		shape      backends.Shaping
		blockBytes int
		depth      int
		want       float64
	}{
		"100 IOPS":                        {backends.Shaping{IOPS: 100}, 4096, 1, 200},
		"100 IOPS, many at once":          {backends.Shaping{IOPS: 100}, 4096, 16, 200},
		"4 MiB a second":                  {backends.Shaping{BytesPerSecond: 4 * mebibyte}, 64 << 10, 4, 128},
		"the lower of two limits":         {backends.Shaping{IOPS: 10_000, BytesPerSecond: 400 << 10}, 4096, 2, 200},
		"a limit of IOPS behind a delay":  {backends.Shaping{IOPS: 50, Latency: 20 * time.Millisecond}, 4096, 8, 100},
		"a large block is one operation":  {backends.Shaping{IOPS: 50}, 256 << 10, 2, 100},
		"a block that is longer to write": {backends.Shaping{BytesPerSecond: 64 << 10}, 32 << 10, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			v := r.breakable(mebibyte)
			require.NoError(t, r.backend.Shape(t.Context(), v, c.shape))
			a, _ := r.attach(v, false)
			started := time.Now()
			reads := readsFor(t, direct(t, a.ID), c.blockBytes, c.depth, length)
			// The last read of each worker ends after the time.
			want := c.want * time.Since(started).Seconds() / length.Seconds()
			// What may be done at once at the start, and what was cut off at the end.
			slack := 0.15*want + 2
			// A busy machine does less; that it does not do less by the limit is what
			// the limiter's own tests show.
			require.Positive(t, reads)
			require.LessOrEqual(t, float64(reads), want+slack)
		})
	}
}

// The fastest of some reads tells the delay also on a machine that is busy.
func TestShapeDelaysEachRead(t *testing.T) {
	t.Parallel()
	const delay = 20 * time.Millisecond
	r := newRig(t)
	v := r.breakable(mebibyte)
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{Latency: delay, IOPS: 1 << 40}))
	a, _ := r.attach(v, false)
	device, block := direct(t, a.ID), aligned(4096)
	fastest := time.Hour
	for range 50 {
		started := time.Now()
		_, err := device.ReadAt(block, 0)
		require.NoError(t, err)
		fastest = min(fastest, time.Since(started))
	}
	require.GreaterOrEqual(t, fastest, delay)
	require.Less(t, fastest, delay+5*time.Millisecond)

	// They are delayed side by side.
	started := time.Now()
	reads := readsFor(t, device, 4096, 16, time.Second)
	require.Greater(t, float64(reads), 2*float64(time.Since(started)/delay))
}

func TestShapeAppliesAtOnceAndToWritesToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	device := direct(t, a.ID)
	write := func() time.Duration {
		started := time.Now()
		_, err := device.WriteAt(aligned(4096), 0)
		require.NoError(t, err)
		return time.Since(started)
	}
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{Latency: 200 * time.Millisecond}))
	require.InDelta(t, 300, write().Milliseconds(), 100)
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{Latency: time.Hour}))
	done := make(chan time.Duration, 1)
	go func() { done <- write() }()
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{}), "who waits goes on")
	require.Less(t, <-done, 10*time.Second)
	require.Less(t, write(), time.Second)
}

func TestAShapeIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	want := backends.Shaping{IOPS: 10, Latency: time.Second}
	require.NoError(t, r.backend.Shape(t.Context(), v, want), "before it is attached")
	a, _ := r.attach(v, false)
	shape := func() backends.Shaping {
		st, err := fusefile.Ask(t.Context(), holderDir(v))
		require.NoError(t, err)
		return st.Behaviour.Shape
	}
	require.Equal(t, want, shape())
	require.NoError(t, r.backend.Detach(t.Context(), v, a), "does not wait for what waits")
	r.attach(v, false)
	require.Equal(t, want, shape())

	require.ErrorIs(t, r.backend.Shape(t.Context(), v, backends.Shaping{IOPS: -1}), backends.ErrInvalid)
	require.Equal(t, want, shape())
}

func TestOnlyBreakableVolumesAreShapedAndPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	require.ErrorIs(t, r.backend.Shape(t.Context(), v, backends.Shaping{}), backends.ErrPrecondition)
	_, err := r.backend.Pause(t.Context(), v)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, "breakable")
}

// writer writes numbers to the first block of a device, one after the other, and
// notes each when it is written.
type writer struct {
	written atomic.Uint64
	failed  chan error
	stop    context.CancelFunc
}

func startWriter(t *testing.T, device *os.File) *writer {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{failed: make(chan error, 1), stop: cancel}
	go func() {
		block := aligned(4096)
		var err error
		for n := uint64(1); ctx.Err() == nil && err == nil; n++ {
			putNumber(block, n)
			if _, err = device.WriteAt(block, 0); err == nil {
				w.written.Store(n)
			}
		}
		w.failed <- err
	}()
	return w
}

func putNumber(block []byte, n uint64) {
	for i := range 8 {
		block[i] = byte(n >> (8 * i))
	}
}

func numberIn(t *testing.T, path string) (n uint64) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, 8)
	_, err = f.ReadAt(block, 0)
	require.NoError(t, err)
	for i := range 8 {
		n |= uint64(block[i]) << (8 * i)
	}
	return n
}

func TestPauseHoldsAWriter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	w := startWriter(t, direct(t, a.ID))
	written := func() uint64 { return w.written.Load() }
	require.Eventually(t, func() bool { return written() > 10 }, 10*time.Second, time.Millisecond)

	for range 5 {
		before := written()
		release, err := r.backend.Pause(t.Context(), v)
		require.NoError(t, err)
		n := numberIn(t, image(v))
		require.GreaterOrEqual(t, n, before)
		// A copy takes time. The flush of a copy does not wait for the writer,
		// who waits for it.
		s := r.snapshot(v)
		require.Equal(t, n, numberIn(t, filepath.Join(s.Dir, "image")))
		require.Equal(t, n, numberIn(t, image(v)), "it was written to")
		require.LessOrEqual(t, written(), n, "a writer was told what is not there")
		require.NoError(t, release())
		require.Eventually(t, func() bool { return written() > n }, 10*time.Second, time.Millisecond)
	}
	w.stop()
	require.NoError(t, <-w.failed)
}

func TestAPauseHasALimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	release, err := r.backend.Pause(t.Context(), v)
	require.NoError(t, err)
	started := time.Now()
	_, err = direct(t, a.ID).WriteAt(aligned(4096), 0)
	require.NoError(t, err)
	require.InDelta(t, backends.HoldLimit.Seconds(), time.Since(started).Seconds(), 1.5)
	require.ErrorIs(t, release(), fusefile.ErrExpired)
}

func TestAPauseEndsWithTheAttachment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	release, err := r.backend.Pause(t.Context(), v)
	require.NoError(t, err)
	require.NoError(t, release(), "nobody writes to a volume that is not attached")

	a, _ := r.attach(v, false)
	release, err = r.backend.Pause(t.Context(), v)
	require.NoError(t, err)
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	require.ErrorIs(t, release(), fusefile.ErrExpired)
}
