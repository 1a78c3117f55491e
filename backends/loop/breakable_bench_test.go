//go:build linux

package loop_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// BenchmarkBreakable compares 4 KiB of direct I/O on a breakable volume with the
// same on a plain one with direct I/O, taking turns. x-slower is how many times
// as long it takes.
func BenchmarkBreakable(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.FUSE)
	for name, do := range map[string]func(f *os.File, block []byte, offset int64) (int, error){
		"read":  (*os.File).ReadAt,
		"write": (*os.File).WriteAt,
	} {
		b.Run(name, func(b *testing.B) {
			r := newRigAt(b, b.TempDir())
			open := func(l backends.Layout) *os.File {
				l.SizeBytes = 64 * mebibyte
				v := r.volume(l)
				require.NoError(b, r.backend.Create(b.Context(), v))
				a, _ := r.attach(v, false)
				f := direct(b, a.ID)
				for block, offset := aligned(mebibyte), int64(0); offset < l.SizeBytes; offset += mebibyte {
					_, err := f.WriteAt(block, offset)
					require.NoError(b, err)
				}
				return f
			}
			files := []*os.File{open(backends.Layout{DirectIO: true}), open(backends.Layout{Breakable: true})}
			times := make([]time.Duration, len(files))
			block := aligned(4096)
			var offset int64
			for b.Loop() {
				offset = (offset + 37*4096) % (64 * mebibyte)
				for i, f := range files {
					started := time.Now()
					_, err := do(f, block, offset)
					require.NoError(b, err)
					times[i] += time.Since(started)
				}
			}
			b.ReportMetric(float64(times[0].Nanoseconds())/float64(b.N), "plain-ns/op")
			b.ReportMetric(float64(times[1].Nanoseconds())/float64(b.N), "breakable-ns/op")
			b.ReportMetric(float64(times[1])/float64(times[0]), "x-slower")
		})
	}
}
