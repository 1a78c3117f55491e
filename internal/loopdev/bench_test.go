//go:build linux

package loopdev_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// BenchmarkAttach compares Attach with the two system calls that it cannot do
// without, open and LOOP_CONFIGURE, on the same device. It reports the medians,
// as other programs disturb single calls: attach-ns and detach-ns; ns/op is both
// and the loop around them. The floor of attaching is timed without its close,
// Attach with it. "paired" takes turns and reports the ratio of the medians.
func BenchmarkAttach(b *testing.B) {
	l := lives{pool: newPool(b, loopdev.Options{}), backing: newBacking(b, testenv.TmpfsDir(b))}
	d := attach(b, l.pool, l.backing, loopdev.Config{})
	detach(b, l.pool, d)
	l.index = d.Index

	b.Run("floor", func(b *testing.B) {
		var t times
		for b.Loop() {
			l.floor(b, &t)
		}
		t.report(b)
	})
	b.Run("ours", func(b *testing.B) {
		var t times
		for b.Loop() {
			l.ours(b, &t)
		}
		t.report(b)
	})
	b.Run("paired", func(b *testing.B) {
		var ours, floor times
		for b.Loop() {
			l.floor(b, &floor)
			l.ours(b, &ours)
		}
		b.ReportMetric(float64(median(ours.attach))/float64(median(floor.attach)), "attach/floor")
		b.ReportMetric(float64(median(ours.detach))/float64(median(floor.detach)), "detach/floor")
	})
	b.Run("ours-32-callers", func(b *testing.B) {
		var group sync.WaitGroup
		all := make([]times, 32)
		backings := make([]*os.File, len(all))
		for i := range backings {
			backings[i] = newBacking(b, testenv.TmpfsDir(b))
		}
		b.ResetTimer()
		for i := range all {
			group.Go(func() {
				l := lives{pool: l.pool, backing: backings[i]}
				for range b.N/len(all) + 1 {
					l.ours(b, &all[i])
				}
			})
		}
		group.Wait()
		var t times
		for _, one := range all {
			t.attach, t.detach = append(t.attach, one.attach...), append(t.detach, one.detach...)
		}
		t.report(b)
	})
}

// lives attaches and detaches in two ways.
type lives struct {
	pool    *loopdev.Pool
	backing *os.File
	index   int
	count   int
}

type times struct{ attach, detach []time.Duration }

func (t times) report(b *testing.B) {
	b.ReportMetric(float64(median(t.attach)), "attach-ns")
	b.ReportMetric(float64(median(t.detach)), "detach-ns")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// floor is the bare system calls. A turn in which another program has the
// device does not count.
func (l *lives) floor(b *testing.B, t *times) {
	path := "/dev/loop" + strconv.Itoa(l.index)
	config := unix.LoopConfig{Fd: uint32(l.backing.Fd())}
	copy(config.Info.File_name[:63], "bench-floor")

	start := time.Now()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return
	}
	require.NoError(b, err)
	err = unix.IoctlLoopConfigure(fd, &config)
	attached := time.Since(start)
	require.NoError(b, unix.Close(fd))
	if errors.Is(err, unix.EBUSY) {
		return
	}
	require.NoError(b, err)

	start = time.Now()
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(b, err)
	err = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
	require.NoError(b, errors.Join(err, unix.Close(fd)))
	t.attach, t.detach = append(t.attach, attached), append(t.detach, time.Since(start))
}

func (l *lives) ours(b *testing.B, t *times) {
	name := fmt.Sprintf("bench-%d-%p-%d", os.Getpid(), l, l.count)
	l.count++
	start := time.Now()
	d, err := l.pool.Attach(b.Context(), l.backing, loopdev.Config{Name: name})
	attached := time.Since(start)
	if err != nil {
		b.Error(err)
		return
	}
	start = time.Now()
	inUse, err := l.pool.Detach(b.Context(), d)
	if inUse || err != nil {
		b.Errorf("detach loop%d: in use is %t, error %v", d.Index, inUse, err)
	}
	t.attach, t.detach = append(t.attach, attached), append(t.detach, time.Since(start))
}
