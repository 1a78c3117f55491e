//go:build linux

package blockio_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/blockio"
)

// BenchmarkCopy copies an image of 1 GiB with 10 % data, in turn as Copy does
// and as the bare system calls do. Copy must stay within 1.2 times of those;
// medians of pairs say so on a busy machine too.
func BenchmarkCopy(b *testing.B) {
	for where, store := range stores {
		b.Run(where, func(b *testing.B) {
			dir := store(b)
			src := image(b, dir, "src", 1<<30, tenth(1<<30)...)
			require.NoError(b, src.Sync())
			ways := []func(*testing.B, *os.File, *os.File){
				copyBare,
				func(b *testing.B, dst, src *os.File) { require.NoError(b, blockio.Copy(b.Context(), dst, src)) },
			}
			var took [2][]float64
			for b.Loop() {
				for i, way := range ways {
					dst, err := os.Create(filepath.Join(dir, "dst"))
					require.NoError(b, err)
					start := time.Now()
					way(b, dst, src)
					took[i] = append(took[i], time.Since(start).Seconds()*1000)
					require.NoError(b, dst.Close())
					require.NoError(b, os.Remove(dst.Name()))
				}
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			bare, ours := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(bare, "bare-ms")
			b.ReportMetric(ours, "Copy-ms")
			b.ReportMetric(ours/bare, "ratio")
		})
	}
}

// tenth puts data into every tenth MiB.
func tenth(size int64) (data []blockio.Extent) {
	for offset := int64(0); offset < size; offset += 10 * miB {
		data = append(data, blockio.Extent{Offset: offset, Length: miB})
	}
	return data
}

func copyBare(b *testing.B, dst, src *os.File) {
	to, from := int(dst.Fd()), int(src.Fd())
	if unix.IoctlFileClone(to, from) == nil {
		return
	}
	require.NoError(b, dst.Truncate(1<<30))
	p := make([]byte, miB)
	var pos int64
	kernelCopies := true
	for {
		start, err := unix.Seek(from, pos, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return
		}
		require.NoError(b, err)
		pos, err = unix.Seek(from, start, unix.SEEK_HOLE)
		require.NoError(b, err)
		for start < pos {
			in, out := start, start
			n, err := 0, error(nil)
			if kernelCopies {
				n, err = unix.CopyFileRange(from, &in, to, &out, int(pos-start), 0)
			}
			if kernelCopies = kernelCopies && err == nil; !kernelCopies {
				n, err = unix.Pread(from, p, start)
				require.NoError(b, err)
				_, err = unix.Pwrite(to, p[:n], start)
			}
			require.NoError(b, err)
			start += int64(n)
		}
	}
}

// BenchmarkChanged compares two images of 1 GiB with 10 % data that differ in
// one block.
func BenchmarkChanged(b *testing.B) {
	for where, store := range stores {
		b.Run(where, func(b *testing.B) {
			dir := store(b)
			base := image(b, dir, "base", 1<<30, tenth(1<<30)...)
			target, err := os.Create(filepath.Join(dir, "target"))
			require.NoError(b, err)
			defer target.Close()
			require.NoError(b, blockio.Copy(b.Context(), target, base))
			_, err = io.WriteString(target, "changed")
			require.NoError(b, err)
			for b.Loop() {
				require.Len(b, collect(b, blockio.Changed(b.Context(), base, target, 0)), 1)
			}
		})
	}
}

// BenchmarkChangedGrowsWithTheChange compares two images with 1 GiB of data that
// differ in 1 %, where they share the rest and where they share nothing; and
// where that data lies in as many pieces as it can, which is the most that the
// maps of two files cost.
func BenchmarkChangedGrowsWithTheChange(b *testing.B) {
	const volume = 1 << 30
	dir := xfs(b)
	changes := every(volume, 160, 64*kiB)
	var took [2]time.Duration
	pairs := []struct {
		name string
		copy func(dst, src *os.File) error
	}{
		{"shared", func(dst, src *os.File) error { return blockio.Copy(b.Context(), dst, src) }},
		{"compared", func(dst, src *os.File) error {
			_, err := io.Copy(io.NewOffsetWriter(dst, 0), io.NewSectionReader(src, 0, volume))
			return err
		}},
	}
	base := image(b, dir, "base", volume, blockio.Extent{Offset: 0, Length: volume})
	for i, pair := range pairs {
		target := newFile(b, dir, pair.name)
		require.NoError(b, pair.copy(target, base))
		for _, e := range changes {
			fill(b, target, e)
		}
		require.NoError(b, target.Sync())
		b.Run(pair.name, func(b *testing.B) {
			for b.Loop() {
				require.Equal(b, changes, collect(b, blockio.Changed(b.Context(), base, target, 0)))
			}
			took[i] = b.Elapsed() / time.Duration(b.N)
			if i == 1 && took[0] > 0 {
				b.ReportMetric(float64(took[1])/float64(took[0]), "times-shared")
			}
		})
	}
	b.Run("shared, in pieces", func(b *testing.B) {
		base := image(b, dir, "pieces", volume, everySecondBlock(volume)...)
		target := newFile(b, dir, "pieces shared")
		require.NoError(b, blockio.Copy(b.Context(), target, base))
		fill(b, target, blockio.Extent{Offset: 0, Length: 4096})
		for b.Loop() {
			require.Len(b, collect(b, blockio.Changed(b.Context(), base, target, 0)), 1)
		}
	})
}
