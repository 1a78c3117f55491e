//go:build linux

package blockio_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
)

func end(e blockio.Extent) int64 { return e.Offset + e.Length }

// collect takes all of a sequence and checks what every sequence promises.
func collect(tb testing.TB, sequence iter.Seq2[blockio.Extent, error]) (all []blockio.Extent) {
	tb.Helper()
	for e, err := range sequence {
		require.NoError(tb, err)
		require.Positive(tb, e.Length)
		require.Zero(tb, e.Offset%backends.Granularity)
		if len(all) > 0 {
			require.Greater(tb, e.Offset, end(all[len(all)-1]), "ranges touch or go back")
		}
		all = append(all, e)
	}
	return all
}

func allocated(tb testing.TB, f *os.File) int64 {
	tb.Helper()
	n, err := blockio.AllocatedBytes(f)
	require.NoError(tb, err)
	return n
}

func TestExtents(t *testing.T) {
	t.Parallel()
	data := []blockio.Extent{{Offset: 0, Length: 4096}, {Offset: 4096, Length: 4096}, {Offset: miB, Length: 2 * miB}, {Offset: 9*miB + 4096, Length: 10}}
	cases := map[string]struct {
		from int64
		want []blockio.Extent
	}{
		"from the start": {0, []blockio.Extent{{Offset: 0, Length: 8192}, {Offset: miB, Length: 2 * miB}, {Offset: 9*miB + 4096, Length: 4096}}},
		"below zero":     {-1, []blockio.Extent{{Offset: 0, Length: 8192}, {Offset: miB, Length: 2 * miB}, {Offset: 9*miB + 4096, Length: 4096}}},
		"from a hole":    {8192, []blockio.Extent{{Offset: miB, Length: 2 * miB}, {Offset: 9*miB + 4096, Length: 4096}}},
		"from amid data": {2*miB + 5, []blockio.Extent{{Offset: 2 * miB, Length: miB}, {Offset: 9*miB + 4096, Length: 4096}}},
		"from the last":  {9*miB + 4096 + 9, []blockio.Extent{{Offset: 9*miB + 4096, Length: 4096}}},
		"from the end":   {10 * miB, nil},
		"past the end":   {1 << 50, nil},
	}
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := image(t, store(t), "image", 10*miB, data...)
			for name, c := range cases {
				require.Equal(t, c.want, collect(t, blockio.Extents(t.Context(), f, c.from)), name)
			}
		})
	}
}

func TestExtentsEndWithTheFile(t *testing.T) {
	t.Parallel()
	f := image(t, t.TempDir(), "image", 5000, blockio.Extent{Offset: 4097, Length: 1})
	require.Equal(t, []blockio.Extent{{Offset: 4096, Length: 904}}, collect(t, blockio.Extents(t.Context(), f, 0)))
}

func TestExtentsOfReservedSpaceAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := image(t, dir, "image", 0)
	require.NoError(t, blockio.Allocate(t.Context(), f, miB))
	require.Empty(t, collect(t, blockio.Extents(t.Context(), f, 0)))
}

func TestExtentsStopWithTheirConsumer(t *testing.T) {
	t.Parallel()
	f := image(t, t.TempDir(), "image", miB, everySecondBlock(miB)...)
	var seen int
	for _, err := range blockio.Extents(t.Context(), f, 0) {
		require.NoError(t, err)
		if seen++; seen == 2 {
			break
		}
	}
	require.Equal(t, 2, seen)
}

func TestSequencesEndWithTheirError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := image(t, dir, "image", miB, everySecondBlock(miB)...)
	other := image(t, dir, "other", miB, everySecondBlock(miB)...)
	closed, err := os.Create(filepath.Join(dir, "closed"))
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	cases := map[string]struct {
		sequence iter.Seq2[blockio.Extent, error]
		want     error
	}{
		"extents, context ends":   {blockio.Extents(cancelledAfter(t, 5), f, 0), context.Canceled},
		"changed, context ends":   {blockio.Changed(cancelledAfter(t, 5), f, other, 0), context.Canceled},
		"extents, file is closed": {blockio.Extents(t.Context(), closed, 0), os.ErrClosed},
		"changed, base is closed": {blockio.Changed(t.Context(), closed, other, 0), os.ErrClosed},
	}
	for name, c := range cases {
		var errs []error
		for e, err := range c.sequence {
			if err != nil {
				require.Zero(t, e, name)
				errs = append(errs, err)
				continue
			}
			require.Empty(t, errs, "%s: goes on after its error", name)
		}
		require.Len(t, errs, 1, name)
		require.ErrorIs(t, errs[0], c.want, name)
	}
}
