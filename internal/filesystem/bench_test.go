//go:build linux

package filesystem_test

import (
	"crypto/rand"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// What Format may add, at the median, to the writing itself: so much time or, as
// everything takes longer on a machine that is busy with other things, so many
// times what the writing takes.
const (
	ownTimeLimit = 2 * time.Millisecond
	ownTimeRatio = 4
)

// BenchmarkFormat is Format of a shape that is known, on a loop device over a
// tmpfs, beside the floor: the same bytes in the same extents written to another
// such device and handed to it. Both are measured in turn. Reported are the
// medians and what lies between them; for ext4 that has a limit.
func BenchmarkFormat(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Tmpfs)
	const size = gibibyte
	for _, fs := range []filesystem.Type{filesystem.Ext4, filesystem.XFS, filesystem.Btrfs} {
		b.Run(string(fs), func(b *testing.B) {
			needType(b, fs)
			store := newBenchStore(b)
			maker := filesystem.NewMaker(filesystem.Options{})
			ranges, err := maker.Ranges(b.Context(), fs, size, 512)
			require.NoError(b, err)
			format := func(device string) {
				_, err := maker.Format(b.Context(), device, fs, size, false)
				require.NoError(b, err)
			}
			write := func(device string) {
				file, err := os.OpenFile(device, os.O_RDWR, 0)
				require.NoError(b, err)
				for _, r := range ranges {
					_, err := file.WriteAt(r.Data, r.Offset)
					require.NoError(b, err)
				}
				require.NoError(b, unix.SyncFileRange(int(file.Fd()), 0, 0,
					unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER))
				require.NoError(b, file.Close())
			}
			var formats, floors []time.Duration
			for b.Loop() {
				formats = append(formats, store.measure(b, size, format))
				floors = append(floors, store.measure(b, size, write))
			}
			whole, floor := median(formats), median(floors)
			b.ReportMetric(milliseconds(whole), "format-ms")
			b.ReportMetric(milliseconds(floor), "floor-ms")
			b.ReportMetric(milliseconds(whole-floor), "own-ms")
			b.ReportMetric(0, "ns/op") // it would count the devices
			// A few rounds say nothing: b.Loop starts with one.
			if fs == filesystem.Ext4 && len(formats) >= 20 && whole-floor > max(ownTimeLimit, ownTimeRatio*floor) {
				b.Errorf("format adds %v to what the writing takes", whole-floor)
			}
		})
	}
}

// BenchmarkProbe is Probe of a formatted device.
func BenchmarkProbe(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop)
	device := attach(b, newFilesystem(b, filesystem.NewMaker(filesystem.Options{}), filesystem.Ext4, 64*mebibyte), loopdev.Config{})
	for b.Loop() {
		_, err := filesystem.Probe(b.Context(), device.Path())
		require.NoError(b, err)
	}
}

// benchStore is a tmpfs for images, and a pool of loop devices over them.
type benchStore struct {
	dir  string
	pool *loopdev.Pool
}

func newBenchStore(b *testing.B) benchStore {
	b.Helper()
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, pool.Close()) })
	return benchStore{testenv.TmpfsDir(b), pool}
}

// measure makes a blank device, runs do on it, and takes it away again. Only do
// is measured.
func (s benchStore) measure(b *testing.B, size int64, do func(device string)) time.Duration {
	b.Helper()
	image, err := os.CreateTemp(s.dir, "image")
	require.NoError(b, err)
	defer os.Remove(image.Name())
	defer image.Close()
	require.NoError(b, image.Truncate(size))
	device, err := s.pool.Attach(b.Context(), image, loopdev.Config{Name: "bench-" + rand.Text(), Autoclear: true})
	require.NoError(b, err)
	defer func() {
		_, err := s.pool.Detach(b.Context(), device)
		require.NoError(b, err)
	}()
	start := time.Now()
	do(device.Path())
	return time.Since(start)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
