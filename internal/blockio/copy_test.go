//go:build linux

package blockio_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/testenv"
)

// shapes are images by where their data lies.
var shapes = map[string]struct {
	size int64
	data []blockio.Extent
	// reserved is space without data.
	reserved blockio.Extent
}{
	"empty file":                 {},
	"one hole":                   {size: 32 * miB},
	"all data":                   {size: 3 * miB, data: []blockio.Extent{{Offset: 0, Length: 3 * miB}}},
	"more data than one chunk":   {size: 20 * miB, data: []blockio.Extent{{Offset: miB, Length: 18 * miB}}},
	"data at the start":          {size: 32 * miB, data: []blockio.Extent{{Offset: 0, Length: 4096}}},
	"data at the end":            {size: 32 * miB, data: []blockio.Extent{{Offset: 32*miB - 4096, Length: 4096}}},
	"a few bytes":                {size: 5, data: []blockio.Extent{{Offset: 0, Length: 5}}},
	"size and data between":      {size: 10*miB + 777, data: []blockio.Extent{{Offset: 5001, Length: 3}, {Offset: 10*miB + 700, Length: 77}}},
	"data every second block":    {size: 4 * miB, data: everySecondBlock(4 * miB)},
	"reserved space behind data": {size: 16 * miB, data: []blockio.Extent{{Offset: 0, Length: 8192}}, reserved: blockio.Extent{Offset: 4 * miB, Length: miB}},
	"1 TiB with two blocks":      {size: 1 << 40, data: []blockio.Extent{{Offset: 1 << 30, Length: 4096}, {Offset: 1<<40 - 4096, Length: 4096}}},
}

func everySecondBlock(size int64) (data []blockio.Extent) {
	for offset := int64(0); offset < size; offset += 8192 {
		data = append(data, blockio.Extent{Offset: offset, Length: 4096})
	}
	return data
}

func TestCopyKeepsBytesSizeAndHoles(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			for name, shape := range shapes {
				src := image(t, dir, name, shape.size, shape.data...)
				if shape.reserved.Length > 0 {
					require.NoError(t, blockio.Allocate(t.Context(), src, end(shape.reserved)))
				}
				dst := newFile(t, dir, name+" copied")
				require.NoError(t, blockio.Copy(t.Context(), dst, src), name)
				requireSame(t, name, dst, src)
			}
		})
	}
}

func TestCopyBetweenFileSystems(t *testing.T) {
	t.Parallel()
	directories := map[string]string{}
	for where, store := range stores {
		directories[where] = store(t)
	}
	for from, srcDir := range directories {
		for to, dstDir := range directories {
			if from == to {
				continue
			}
			src := image(t, srcDir, "to"+filepath.Base(dstDir), 30*miB+1, blockio.Extent{Offset: 9 * miB, Length: 11 * miB})
			dst := newFile(t, dstDir, "from"+filepath.Base(srcDir))
			require.NoError(t, blockio.Copy(t.Context(), dst, src), "from %s to %s", from, to)
			requireSame(t, from+" "+to, dst, src)
		}
	}
}

// requireSame compares what two files read as and that the copy has the holes.
func requireSame(t *testing.T, name string, got, want *os.File) {
	t.Helper()
	require.Equal(t, size(t, want), size(t, got), name)
	require.Empty(t, collect(t, blockio.Changed(t.Context(), want, got, 0)), name)
	if all := whole(t, want); all.Length < 100*miB { // not only by our own comparison
		require.Equal(t, digest(t, want, all), digest(t, got, all), name)
	}
	require.LessOrEqual(t, allocated(t, got), allocated(t, want)+64*kiB, "%s: the copy takes more than its source", name)
}

func TestCopyDoesNotDisturbALaterWriteToEither(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			src := image(t, dir, "src", 4*miB, blockio.Extent{Offset: 0, Length: 4 * miB})
			dst := newFile(t, dir, "dst")
			require.NoError(t, blockio.Copy(t.Context(), dst, src))
			before := digest(t, src, whole(t, src))
			fill(t, src, blockio.Extent{Offset: miB, Length: 4096})
			require.Equal(t, before, digest(t, dst, whole(t, dst)))

			before = digest(t, src, whole(t, src))
			fill(t, dst, blockio.Extent{Offset: 2 * miB, Length: 4096})
			require.Equal(t, before, digest(t, src, whole(t, src)))
		})
	}
}

func TestCopySharesBlocksWhereTheStoreCan(t *testing.T) {
	t.Parallel()
	dir := xfs(t)
	src := image(t, dir, "src", 32*miB, blockio.Extent{Offset: 0, Length: 32 * miB})
	require.NoError(t, src.Sync())
	before, err := blockio.FreeBytes(dir)
	require.NoError(t, err)

	dst := newFile(t, dir, "dst")
	require.NoError(t, blockio.Copy(t.Context(), dst, src))
	require.NoError(t, dst.Sync())
	after, err := blockio.FreeBytes(dir)
	require.NoError(t, err)
	require.Less(t, before-after, 8*miB)
}

func TestCopyRefusesADestinationWithContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := image(t, dir, "src", miB)
	dst := image(t, dir, "dst", miB, blockio.Extent{Offset: 0, Length: 4096})
	before := digest(t, dst, whole(t, dst))
	require.ErrorIs(t, blockio.Copy(t.Context(), dst, src), os.ErrExist)
	require.Equal(t, before, digest(t, dst, whole(t, dst)))
}

func TestCopyStopsWhereverItsContextEnds(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			src := image(t, dir, "src", 40*miB, blockio.Extent{Offset: 0, Length: 40 * miB})
			for looks := 0; ; looks++ {
				dst := newFile(t, dir, fmt.Sprintf("after %d looks", looks))
				err := blockio.Copy(cancelledAfter(t, looks), dst, src)
				if err == nil {
					require.GreaterOrEqual(t, looks, 3, "it must look before and between chunks")
					break
				}
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, allocated(t, dst), int64(looks)*32*miB, "a chunk is too large")
			}
		})
	}
}

func TestCopyToAFullStoreIsExhausted(t *testing.T) {
	t.Parallel()
	src := image(t, t.TempDir(), "src", 4*miB, blockio.Extent{Offset: 0, Length: 4 * miB})
	dst := newFile(t, idleAtEnd(t, testenv.SmallTmpfsDir(t, miB)), "dst")
	err := blockio.Copy(t.Context(), dst, src)
	require.ErrorIs(t, err, backends.ErrExhausted)
	require.ErrorContains(t, err, "src")
	require.ErrorContains(t, err, "dst")
}

func TestCopyReportsAFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := store(t)
			src := image(t, dir, "src", miB, blockio.Extent{Offset: 0, Length: miB})
			newFile(t, dir, "dst")
			dst, err := os.Open(filepath.Join(dir, "dst"))
			require.NoError(t, err)
			defer dst.Close()
			require.Error(t, blockio.Copy(t.Context(), dst, src))
		})
	}
}
