//go:build linux

package filesystem_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// A format that ends after any number of writes, or within one, is known as what
// it is, and the next format makes a whole file system of it.
func TestInterruptedFormatIsKnownAndRepaired(t *testing.T) {
	t.Parallel()
	for fs, size := range types {
		for _, sync := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sync %v", fs, sync), func(t *testing.T) {
				t.Parallel()
				needType(t, fs)
				maker := shared()
				ranges, err := maker.Ranges(t.Context(), fs, size, 512)
				require.NoError(t, err)
				path := newImage(t, size)
				stride := 1
				if sync || testing.Short() {
					stride = 7 // flushes are cut with what is before
				}
				for writes := 0; writes < len(ranges)+2; writes += stride {
					empty(t, path)
					err := maker.FormatCut(t.Context(), path, fs, size, sync,
						filesystem.Cut{Writes: writes, TornSectors: writes % 3})
					content := probe(t, path)
					switch torn := writes % 3; {
					case writes == len(ranges)+1, writes == len(ranges) && torn > 0:
						// The mark and all ranges, the last of one sector.
						require.Equal(t, string(fs), content.Type)
						require.NoError(t, check(t, path, fs))
						continue
					case writes == 0:
						require.True(t, content.Blank())
					default:
						require.Equal(t, filesystem.Content{Half: true}, content, "after %d writes", writes)
					}
					require.ErrorIs(t, err, filesystem.ErrCut)

					_, err = maker.Format(t.Context(), path, fs, size, false)
					require.NoError(t, err)
					requireSameData(t, path, ranges, size)
					if writes%16 == 1 {
						require.NoError(t, check(t, path, fs))
					}
				}
			})
		}
	}
}

// The retry may be for another type, when the caller gave up in between.
func TestInterruptedFormatIsRepairedAsAnotherType(t *testing.T) {
	t.Parallel()
	const size = 300 * mebibyte
	maker := shared()
	for first := range types {
		for second := range types {
			t.Run(fmt.Sprintf("%s, then %s", first, second), func(t *testing.T) {
				t.Parallel()
				needType(t, first)
				needType(t, second)
				shortOnly(t, first, filesystem.Btrfs)
				ranges, err := maker.Ranges(t.Context(), first, size, 512)
				require.NoError(t, err)
				path := newImage(t, size)
				// All is written but the last sector, which takes the mark away.
				cut := filesystem.Cut{Writes: len(ranges)}
				require.ErrorIs(t, maker.FormatCut(t.Context(), path, first, size, false, cut), filesystem.ErrCut)
				require.True(t, probe(t, path).Half)

				_, err = maker.Format(t.Context(), path, second, size, false)
				require.NoError(t, err)
				ranges, err = maker.Ranges(t.Context(), second, size, 512)
				require.NoError(t, err)
				requireSameData(t, path, ranges, size)
				require.NoError(t, check(t, path, second))
			})
		}
	}
}

// The discard of what an interrupted format left can be interrupted too.
func TestInterruptedDiscardIsKnown(t *testing.T) {
	t.Parallel()
	const size = 64 * mebibyte
	needType(t, filesystem.Ext4)
	maker := shared()
	path := newImage(t, size)
	require.ErrorIs(t, maker.FormatCut(t.Context(), path, filesystem.Ext4, size, false, filesystem.Cut{Writes: 5}), filesystem.ErrCut)
	for range 3 {
		err := maker.FormatCut(t.Context(), path, filesystem.Ext4, size, false, filesystem.Cut{Zeroing: true})
		require.ErrorIs(t, err, filesystem.ErrCut)
		require.Equal(t, filesystem.Content{Half: true}, probe(t, path))
	}
	_, err := maker.Format(t.Context(), path, filesystem.Ext4, size, false)
	require.NoError(t, err)
	require.NoError(t, check(t, path, filesystem.Ext4))
}

// empty makes a file a hole again.
func empty(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, os.Truncate(path, info.Size()))
}

// requireSameData insists that a file holds data only where the ranges have it:
// nothing of an earlier format is left. What the identity of the volume changes
// within the ranges is left to the tools.
func requireSameData(t *testing.T, path string, ranges []filesystem.Range, size int64) {
	t.Helper()
	const block = 4096
	written := map[int64]bool{}
	for _, r := range ranges {
		for at := r.Offset / block * block; at < r.Offset+int64(len(r.Data)); at += block {
			written[at] = true
		}
	}
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	extents, err := filesystem.DataExtents(file, size)
	require.NoError(t, err)
	data, zeros := make([]byte, block), make([]byte, block)
	for _, e := range extents {
		for at := e[0]; at < e[1]; at += block {
			if _, err := file.ReadAt(data, at); !written[at] {
				require.NoError(t, err)
				require.True(t, bytes.Equal(zeros, data), "an earlier format is left at %d", at)
			}
		}
	}
}
