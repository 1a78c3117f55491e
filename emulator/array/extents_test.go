package array_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/internal/record"
)

// mapped is a backend whose every snapshot has the same extents.
type mapped struct {
	*memory.Backend
	extents iter.Seq2[backends.Extent, error]
}

func (m *mapped) Allocated(context.Context, backends.Snapshot, int64) iter.Seq2[backends.Extent, error] {
	return m.extents
}

func (m *mapped) Changed(context.Context, backends.Snapshot, backends.Snapshot, int64) iter.Seq2[backends.Extent, error] {
	return m.extents
}

func openMapped(t *testing.T, m backends.Backend) *array.Array {
	t.Helper()
	a, err := array.Open(t.Context(), array.Options{
		Backend: m, Store: record.NewMemory(), Pools: map[string]int64{"default": pool}, DefaultPool: "default", Holder: &still{},
	})
	require.NoError(t, err)
	return a
}

// cutTwice makes a volume of 16 MiB and two snapshots of it.
func cutTwice(t *testing.T, a *array.Array, name string) (base, target *array.Snapshot) {
	t.Helper()
	v, err := a.Create(t.Context(), request(name))
	require.NoError(t, err)
	cut := func(of string) *array.Snapshot {
		s, err := a.CreateSnapshot(t.Context(), array.SnapshotRequest{Name: name + of, SourceID: v.ID})
		require.NoError(t, err)
		return s
	}
	return cut(" base"), cut(" target")
}

func TestRangesEndWithTheVolume(t *testing.T) {
	t.Parallel()
	a := openMapped(t, &mapped{Backend: memory.New(memory.Options{}), extents: func(yield func(backends.Extent, error) bool) {
		_ = yield(backends.Extent{Offset: 0, Length: 4096}, nil) &&
			yield(backends.Extent{Offset: 16*mib - 4096, Length: 8192}, nil) &&
			yield(backends.Extent{Offset: 17 * mib, Length: 4096}, nil)
	}})
	base, target := cutTwice(t, a, "v")
	allocated, err := a.Allocated(t.Context(), target.ID, 0)
	require.NoError(t, err)
	changed, err := a.Changed(t.Context(), base.ID, target.ID, 0)
	require.NoError(t, err)
	for _, r := range []*array.Ranges{allocated, changed} {
		require.EqualValues(t, 16*mib, r.SizeBytes)
		var all []backends.Extent
		for e, err := range r.All {
			require.NoError(t, err)
			all = append(all, e)
		}
		require.Equal(t, []backends.Extent{{Offset: 0, Length: 4096}, {Offset: 16*mib - 4096, Length: 4096}}, all)
	}
}

func TestRangesStopWithTheirConsumer(t *testing.T) {
	t.Parallel()
	a := openMapped(t, &mapped{Backend: memory.New(memory.Options{}), extents: func(yield func(backends.Extent, error) bool) {
		for i := int64(0); yield(backends.Extent{Offset: i * 8192, Length: 4096}, nil); i++ {
			require.Less(t, i, int64(2))
		}
	}})
	_, target := cutTwice(t, a, "v")
	r, err := a.Allocated(t.Context(), target.ID, 0)
	require.NoError(t, err)
	var seen int
	for _, err := range r.All {
		require.NoError(t, err)
		if seen++; seen == 2 {
			break
		}
	}
	require.Equal(t, 2, seen)
}

// TestRangesOfASnapshotThatGoes has bytes missing with and without a reason.
func TestRangesOfASnapshotThatGoes(t *testing.T) {
	t.Parallel()
	gone := fmt.Errorf("open image: %w", backends.ErrDataLoss)
	for name, c := range map[string]struct {
		delete bool
		fails  error
		want   error
	}{
		"deleted meanwhile":      {true, gone, backends.ErrNotFound},
		"lost":                   {false, gone, backends.ErrDataLoss},
		"cancelled and deleted":  {true, context.Canceled, context.Canceled},
		"a store that is broken": {false, errBroken, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &mapped{Backend: memory.New(memory.Options{})}
			a := openMapped(t, m)
			base, target := cutTwice(t, a, "v")
			m.extents = func(yield func(backends.Extent, error) bool) {
				if !yield(backends.Extent{Offset: 0, Length: 4096}, nil) {
					return
				}
				if c.delete {
					require.NoError(t, a.DeleteSnapshot(t.Context(), base.ID))
				}
				yield(backends.Extent{}, c.fails)
			}
			r, err := a.Changed(t.Context(), base.ID, target.ID, 0)
			require.NoError(t, err)
			var errs []error
			for e, err := range r.All {
				if err != nil {
					require.Zero(t, e)
					errs = append(errs, err)
				}
			}
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], c.want)
			if errors.Is(c.want, backends.ErrNotFound) {
				require.NotErrorIs(t, errs[0], backends.ErrDataLoss, "nothing is lost that was deleted")
				require.ErrorContains(t, errs[0], base.ID)
			}
		})
	}
}

func TestRangesOfABackendWithoutBlocks(t *testing.T) {
	t.Parallel()
	a := openMapped(t, memory.New(memory.Options{}))
	base, target := cutTwice(t, a, "v")
	_, err := a.Allocated(t.Context(), target.ID, 0)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	_, err = a.Changed(t.Context(), base.ID, target.ID, 0)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, "changed block tracking is not enabled")
}
