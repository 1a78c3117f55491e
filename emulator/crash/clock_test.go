//go:build linux

package crash_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/internal/record"
)

// TestClockThatJumpsBack makes volumes now, and others after a restart of a
// machine whose clock has fallen back to the year 2000, where synctest begins:
// lists stay in the order of making, and a token goes on from where it was given
// out.
func TestClockThatJumpsBack(t *testing.T) {
	t.Parallel()
	store := record.NewMemory()
	first := openArray(t.Context(), t, store)
	create(t.Context(), t, first, "now", 3)
	_, token, err := first.List("", 2)
	require.NoError(t, err)
	require.NotEmpty(t, token)
	synctest.Test(t, func(t *testing.T) {
		a := openArray(t.Context(), t, store)
		create(t.Context(), t, a, "earlier", 3)
		all, _, err := a.List("", 0)
		require.NoError(t, err)
		require.Equal(t, []string{"now-0", "now-1", "now-2", "earlier-0", "earlier-1", "earlier-2"}, namesOf(all))
		rest, more, err := a.List(token, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"now-2", "earlier-0"}, namesOf(rest))
		rest, more, err = a.List(more, 0)
		require.NoError(t, err)
		require.Empty(t, more)
		require.Equal(t, []string{"earlier-1", "earlier-2"}, namesOf(rest))

		t.Log("without any volume from before, the clock is all that is left; a token from before is not taken for one of now")
		for _, v := range all {
			require.NoError(t, a.Delete(t.Context(), v.ID))
		}
		a = openArray(t.Context(), t, store)
		create(t.Context(), t, a, "again", 2)
		_, _, err = a.List(token, 0)
		require.ErrorIs(t, err, backends.ErrAborted)
	})
}

func openArray(ctx context.Context, t *testing.T, store record.Store) *array.Array {
	t.Helper()
	const pool = "default"
	a, err := array.Open(ctx, array.Options{
		Backend: memory.New(memory.Options{}), Store: store, Pools: map[string]int64{pool: 1 << 30}, DefaultPool: pool,
	})
	require.NoError(t, err)
	return a
}

func create(ctx context.Context, t *testing.T, a *array.Array, name string, n int) {
	t.Helper()
	for i := range n {
		_, err := a.Create(ctx, array.CreateRequest{
			Name: fmt.Sprintf("%s-%d", name, i), RequiredBytes: mib,
			Capabilities: []access.Capability{{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}},
		})
		require.NoError(t, err)
	}
}

func namesOf(volumes []*array.Volume) (names []string) {
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	return names
}
