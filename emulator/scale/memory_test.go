package scale_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends/memory"
)

// TestMemoryOfIdleVolumes bounds what a volume takes that nobody uses, its record
// included, which is in memory too here. It is not parallel: the heap is the
// process's.
func TestMemoryOfIdleVolumes(t *testing.T) {
	const volumes, limit = 10_000, 4 << 10
	d := start(t, memory.New(memory.Options{}), "")
	d.fill(t, 0, 100, "")
	before := heap()
	d.fill(t, 100, 100+volumes, "")
	each := (heap() - before) / volumes
	t.Logf("%d bytes a volume", each)
	require.Positive(t, each)
	require.Less(t, each, int64(limit))
	runtime.KeepAlive(d)
}

// heap is what is reachable.
func heap() int64 {
	var m runtime.MemStats
	for range 3 { // finalizers and pools need more than one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
