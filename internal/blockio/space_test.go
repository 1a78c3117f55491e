//go:build linux

package blockio_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestAllocateTakesSpaceAndKeepsData(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := image(t, store(t), "image", miB, blockio.Extent{Offset: 100, Length: 5000})
			before := digest(t, f, whole(t, f))
			require.NoError(t, blockio.Allocate(t.Context(), f, 70*miB))

			require.GreaterOrEqual(t, allocated(t, f), 70*miB)
			require.Equal(t, 70*miB, size(t, f))
			require.Equal(t, before, digest(t, f, blockio.Extent{Offset: 0, Length: miB}))
			zeros := newFile(t, t.TempDir(), "zeros")
			require.NoError(t, zeros.Truncate(miB))
			require.Equal(t, digest(t, zeros, whole(t, zeros)), digest(t, f, blockio.Extent{Offset: 64 * miB, Length: miB}))

			require.NoError(t, blockio.Allocate(t.Context(), f, miB), "a smaller size")
			require.Equal(t, 70*miB, size(t, f))
		})
	}
}

func TestAllocateGivesBackWhatItCannotFinish(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := image(t, store(t), "image", miB, blockio.Extent{Offset: 0, Length: miB})
			before := allocated(t, f)
			err := blockio.Allocate(cancelledAfter(t, 2), f, 300*miB)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, miB, size(t, f))
			require.LessOrEqual(t, allocated(t, f), before+64*kiB)
		})
	}
}

func TestAllocateChangesTheSizeLast(t *testing.T) {
	t.Parallel()
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := image(t, store(t), "image", miB)
			looks := 0
			ctx := watched{t.Context(), func() error {
				looks++
				require.Equal(t, miB, size(t, f))
				return nil
			}}
			require.NoError(t, blockio.Allocate(ctx, f, 130*miB))
			require.Equal(t, 130*miB, size(t, f))
			require.Equal(t, 3, looks)
		})
	}
}

func TestAllocateOnAFullStoreIsExhausted(t *testing.T) {
	t.Parallel()
	dir := idleAtEnd(t, testenv.SmallTmpfsDir(t, 4*miB))
	f := image(t, dir, "image", miB, blockio.Extent{Offset: 0, Length: miB})
	free, err := blockio.FreeBytes(dir)
	require.NoError(t, err)
	require.Equal(t, 3*miB, free)

	require.ErrorIs(t, blockio.Allocate(t.Context(), f, 80*miB), backends.ErrExhausted)
	require.Equal(t, miB, size(t, f))
	free, err = blockio.FreeBytes(dir)
	require.NoError(t, err)
	require.Equal(t, 3*miB, free)

	require.NoError(t, blockio.Allocate(t.Context(), f, 4*miB))
	free, err = blockio.FreeBytes(dir)
	require.NoError(t, err)
	require.Zero(t, free)
}

func TestSpaceOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "gone")
	_, err := blockio.FreeBytes(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, dir)

	f, err := os.Create(dir)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = blockio.AllocatedBytes(f)
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, dir)
}
