//go:build linux

package blockio_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"golang.org/x/sys/unix"
)

// punch makes a hole.
func punch(t *testing.T, f *os.File, e blockio.Extent) {
	t.Helper()
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, e.Offset, e.Length)
	require.NoError(t, err)
}

func rewriteSame(t *testing.T, f *os.File, e blockio.Extent) {
	t.Helper()
	p := make([]byte, e.Length)
	_, err := f.ReadAt(p, e.Offset)
	require.NoError(t, err)
	_, err = f.WriteAt(p, e.Offset)
	require.NoError(t, err)
}

func TestChanged(t *testing.T) {
	t.Parallel()
	const size = 16 * miB
	data := []blockio.Extent{{Offset: 0, Length: 2 * miB}, {Offset: 8 * miB, Length: 2 * miB}}
	cases := map[string]struct {
		change func(*testing.T, *os.File)
		from   int64
		want   []blockio.Extent
	}{
		"nothing": {change: func(*testing.T, *os.File) {}},
		"one byte": {
			change: func(t *testing.T, f *os.File) {
				p := make([]byte, 1)
				_, err := f.ReadAt(p, 8193)
				require.NoError(t, err)
				p[0]++
				_, err = f.WriteAt(p, 8193)
				require.NoError(t, err)
			},
			want: []blockio.Extent{{Offset: 8192, Length: 4096}},
		},
		"the same bytes written again": {
			change: func(t *testing.T, f *os.File) { rewriteSame(t, f, blockio.Extent{Offset: 0, Length: miB}) },
		},
		"data where a hole was": {
			change: func(t *testing.T, f *os.File) { fill(t, f, blockio.Extent{Offset: 4 * miB, Length: 12288}) },
			want:   []blockio.Extent{{Offset: 4 * miB, Length: 12288}},
		},
		"zeros where a hole was": {
			change: func(t *testing.T, f *os.File) {
				_, err := f.WriteAt(make([]byte, 8192), 4*miB)
				require.NoError(t, err)
			},
		},
		"a hole where data was": {
			change: func(t *testing.T, f *os.File) { punch(t, f, blockio.Extent{Offset: miB, Length: miB}) },
			want:   []blockio.Extent{{Offset: miB, Length: miB}},
		},
		"on both sides of unchanged data": {
			change: func(t *testing.T, f *os.File) {
				fill(t, f, blockio.Extent{Offset: 2*miB - 4096, Length: 8192})
				fill(t, f, blockio.Extent{Offset: 9 * miB, Length: 4096})
			},
			want: []blockio.Extent{{Offset: 2*miB - 4096, Length: 8192}, {Offset: 9 * miB, Length: 4096}},
		},
		"only what ends behind from": {
			change: func(t *testing.T, f *os.File) { fill(t, f, blockio.Extent{Offset: 0, Length: miB}) },
			from:   miB - 100,
			want:   []blockio.Extent{{Offset: miB - 4096, Length: 4096}},
		},
		"grown, with a hole": {
			change: func(t *testing.T, f *os.File) { require.NoError(t, f.Truncate(size+miB)) },
		},
		"grown, with data behind the old end": {
			change: func(t *testing.T, f *os.File) {
				require.NoError(t, f.Truncate(size+miB))
				fill(t, f, blockio.Extent{Offset: size - 4096, Length: 8192})
			},
			want: []blockio.Extent{{Offset: size - 4096, Length: 8192}},
		},
		"shrunk": {
			change: func(t *testing.T, f *os.File) {
				require.NoError(t, f.Truncate(miB+100))
				fill(t, f, blockio.Extent{Offset: miB, Length: 100})
			},
			want: []blockio.Extent{{Offset: miB, Length: 100}},
		},
	}
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			for name, c := range cases {
				base := image(t, dir, name, size, data...)
				target := newFile(t, dir, name+" changed")
				require.NoError(t, blockio.Copy(t.Context(), target, base))
				c.change(t, target)
				got := collect(t, blockio.Changed(t.Context(), base, target, c.from))
				require.Equal(t, c.want, got, name)
			}
		})
	}
}

// TestChangedAgreesWithReading compares with a plain comparison of all bytes,
// over random histories of two files that come from one.
func TestChangedAgreesWithReading(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			for round := range 10 {
				seed := rand.Uint64()
				random := rand.New(rand.NewPCG(seed, 0))
				base := image(t, dir, "base"+strconv.Itoa(round), miB+random.Int64N(2)*1000)
				scribble(t, random, base)
				target := newFile(t, dir, "target"+strconv.Itoa(round))
				require.NoError(t, blockio.Copy(t.Context(), target, base))
				scribble(t, random, target)
				if random.IntN(2) == 0 {
					scribble(t, random, base)
				}
				from := random.Int64N(miB + miB/4)
				want := changedByReading(content(t, base), content(t, target), from/backends.Granularity*backends.Granularity)
				got := collect(t, blockio.Changed(t.Context(), base, target, from))
				require.Empty(t, cmp.Diff(want, got), "seed %d from %d", seed, from)
			}
		})
	}
}

// scribble writes, rewrites and punches at random, and flushes sometimes.
func scribble(t *testing.T, random *rand.Rand, f *os.File) {
	t.Helper()
	for range random.IntN(12) {
		e := blockio.Extent{Offset: random.Int64N(miB - 200*kiB), Length: 1 + random.Int64N(200*kiB)}
		switch random.IntN(5) {
		case 0:
			punch(t, f, e)
		case 1:
			rewriteSame(t, f, e)
		case 2:
			require.NoError(t, f.Sync())
		default:
			fill(t, f, e)
		}
	}
}

func changedByReading(base, target []byte, from int64) (all []blockio.Extent) {
	for offset := int(from); offset < len(target); offset += backends.Granularity {
		stop := min(offset+backends.Granularity, len(target))
		if offset < len(base) && bytes.Equal(base[offset:min(stop, len(base))], target[offset:stop]) {
			continue
		}
		if last := len(all) - 1; last >= 0 && end(all[last]) == int64(offset) {
			all[last].Length += int64(stop - offset)
			continue
		}
		all = append(all, blockio.Extent{Offset: int64(offset), Length: int64(stop - offset)})
	}
	return all
}

// bytesRead is what this thread has read so far.
func bytesRead(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Skipf("this kernel does not count what threads read: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, "rchar: "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			require.NoError(t, err)
			return n
		}
	}
	t.Skip("this kernel does not count what threads read")
	return 0
}

// TestChangedReadsNoMoreThanItMust counts the bytes that are read of a volume of
// 10 GiB: those that changed where blocks can be shared, elsewhere those that
// are allocated, in both files.
func TestChangedReadsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	const (
		volume, piece = 10 << 30, 64 * kiB
		overhead      = 64 * kiB // counting reads too
	)
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			base := image(t, dir, "base", volume, every(volume, 10, 4*miB)...)
			target := newFile(t, dir, "target")
			require.NoError(t, blockio.Copy(t.Context(), target, base))
			changes := every(volume, 10, piece)
			for _, e := range changes {
				fill(t, target, e)
			}
			before := bytesRead(t)
			require.Equal(t, changes, collect(t, blockio.Changed(t.Context(), base, target, 0)))
			read := bytesRead(t) - before
			require.GreaterOrEqual(t, read, 2*total(changes), "changes are found by reading them")
			if where == onXFS {
				require.LessOrEqual(t, read, 2*total(changes)+overhead)
			}
			require.LessOrEqual(t, read, allocated(t, base)+allocated(t, target)+overhead)
		})
	}
}

// every puts n ranges of the same length into a volume, far apart.
func every(volume, n, length int64) (all []blockio.Extent) {
	apart := volume / n / backends.Granularity * backends.Granularity
	for i := range n {
		all = append(all, blockio.Extent{Offset: i * apart, Length: length})
	}
	return all
}

func total(all []blockio.Extent) (n int64) {
	for _, e := range all {
		n += e.Length
	}
	return n
}

// TestChangedKnowsWhereBlocksAre has two files that share all of their blocks, at
// other offsets.
func TestChangedKnowsWhereBlocksAre(t *testing.T) {
	t.Parallel()
	dir := xfs(t)
	base := image(t, dir, "base", 4*miB, blockio.Extent{Offset: 0, Length: 4 * miB})
	target := newFile(t, dir, "target")
	for _, half := range []int64{0, 2 * miB} {
		require.NoError(t, unix.IoctlFileCloneRange(int(target.Fd()), &unix.FileCloneRange{
			Src_fd: int64(base.Fd()), Src_offset: uint64(half), Src_length: uint64(2 * miB), Dest_offset: uint64(2*miB - half),
		}))
	}
	require.Equal(t, []blockio.Extent{whole(t, base)}, collect(t, blockio.Changed(t.Context(), base, target, 0)))
}

// TestChangedBesideManyHoles has data in the base that the target lacks, behind
// many small ranges that both have.
func TestChangedBesideManyHoles(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			base := image(t, dir, "base", 16*miB, blockio.Extent{Offset: 8 * miB, Length: 8 * miB})
			target := image(t, dir, "target", 16*miB, everySecondBlock(4*miB)...)
			want := append(everySecondBlock(4*miB), blockio.Extent{Offset: 8 * miB, Length: 8 * miB})
			require.Equal(t, want, collect(t, blockio.Changed(t.Context(), base, target, 0)))
			require.Equal(t, want, collect(t, blockio.Changed(t.Context(), target, base, 0)))
		})
	}
}

// TestChangedIsNotMisledByOtherSharedBlocks has two files that share all of their
// blocks, but each with its own copy.
func TestChangedIsNotMisledByOtherSharedBlocks(t *testing.T) {
	t.Parallel()
	dir := xfs(t)
	all := blockio.Extent{Offset: 0, Length: 4 * miB}
	one, other := image(t, dir, "one", all.Length, all), image(t, dir, "other", all.Length, all)
	require.NoError(t, blockio.Copy(t.Context(), newFile(t, dir, "copy of one"), one))
	require.NoError(t, blockio.Copy(t.Context(), newFile(t, dir, "copy of other"), other))
	require.Equal(t, []blockio.Extent{all}, collect(t, blockio.Changed(t.Context(), one, other, 0)))
}

func TestChangedDoesNotReadHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := image(t, dir, "base", 1<<40, blockio.Extent{Offset: 1 << 39, Length: 4096})
	target := image(t, dir, "target", 1<<40, blockio.Extent{Offset: 1<<40 - 4096, Length: 4096})
	want := []blockio.Extent{{Offset: 1 << 39, Length: 4096}, {Offset: 1<<40 - 4096, Length: 4096}}
	require.Equal(t, want, collect(t, blockio.Changed(t.Context(), base, target, 0)))
}

func TestChangedStopsWithItsConsumer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := image(t, dir, "base", 8*miB)
	target := image(t, dir, "target", 8*miB, everySecondBlock(8*miB)...)
	var seen int
	for _, err := range blockio.Changed(t.Context(), base, target, 0) {
		require.NoError(t, err)
		if seen++; seen == 3 {
			break
		}
	}
	require.Equal(t, 3, seen)
}
