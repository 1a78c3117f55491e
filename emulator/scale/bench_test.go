package scale_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
)

const (
	fewVolumes  = 100
	manyVolumes = 10_000
)

// took are the times of calls by their methods.
type took map[string][]time.Duration

// live walks a volume through its life and keeps the times.
func (t took) live(ctx context.Context, tb testing.TB, d *driver, name, fsType string) {
	d.live(ctx, name, fsType, func(method string, do func() (proto.Message, error)) proto.Message {
		begin := time.Now()
		reply, err := do()
		t[method] = append(t[method], time.Since(begin))
		require.NoError(tb, err, method)
		return reply
	})
}

// report tells how many times as much each call costs beside many volumes as
// beside few.
func report(b *testing.B, few, many took) {
	b.Helper()
	for _, method := range methods {
		b.ReportMetric(float64(median(many[method]))/float64(median(few[method])), method+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkVolumesOfMemory compares an emulator of 10,000 idle volumes with one of
// 100, in turns.
func BenchmarkVolumesOfMemory(b *testing.B) {
	benchmarkVolumes(b, "", func() (backends.Backend, string) { return memory.New(memory.Options{}), "" })
}

func benchmarkVolumes(b *testing.B, fsType string, open func() (backends.Backend, string)) {
	drivers, times := [2]*driver{}, [2]took{{}, {}}
	for i, n := range []int{fewVolumes, manyVolumes} {
		backend, state := open()
		drivers[i] = start(b, backend, state)
		drivers[i].fill(b, 0, n, fsType)
		took{}.live(b.Context(), b, drivers[i], "first", fsType)
	}
	lives := 0
	for b.Loop() {
		for i, d := range drivers {
			times[i].live(b.Context(), b, d, fmt.Sprintf("life-%d", lives), fsType)
		}
		lives++
	}
	report(b, times[0], times[1])
}
