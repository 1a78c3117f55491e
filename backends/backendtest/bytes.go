package backendtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

func testCreate(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		v := r.volume(r.plan(a, a.bytes))
		require.NoError(t, r.backend.Delete(t.Context(), v), "there is nothing to delete yet")

		require.NoError(t, r.backend.Create(t.Context(), v))
		require.NoError(t, r.backend.Create(t.Context(), v), "a repeated call")
		used, err := r.backend.Usage(t.Context(), v)
		require.NoError(t, err)
		require.LessOrEqual(t, used.AllocatedBytes, v.SizeBytes)

		r.delete(v)
		r.delete(v)
		require.NoError(t, r.backend.Create(t.Context(), v), "the same volume again")
		r.delete(v)
	})
	t.Run("over leftovers", func(t *testing.T) {
		t.Parallel()
		if h.Unfinished == nil {
			require.NotEmpty(t, h.Lacks[Data], "the harness has no Unfinished")
			t.Skipf("the backend lacks %q: %s", Data, h.Lacks[Data])
		}
		forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
			v := r.volume(r.plan(a, a.bytes))
			h.Unfinished(t, v.Dir)
			r.delete(v)
			h.Unfinished(t, v.Dir)
			require.NoError(t, r.backend.Create(t.Context(), v))
			u := r.use(v, a)
			u.up()
			sum := u.write(u.path, "over leftovers")
			u.requireData(u.path, sum)
			u.down()
		})
	})
	t.Run("reads as zeros", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, h)
		a := h.accesses()[0]
		h.needs(t, a, Data, Devices)
		u := r.use(r.create(a), a)
		u.up()
		require.Equal(t, zeros(a.bytes), digest(t, u.path, a.bytes))
		u.down()
	})
}

// testLoss takes the bytes away: nothing may answer as if the volume were
// empty, and it can be deleted.
func testLoss(t *testing.T, h Harness) {
	forEachAccess(t, h, []Lack{Loss}, func(t *testing.T, r *rig, a access) {
		v, other := r.create(a), r.create(a)
		s := r.snapshotOf(v)
		h.Lose(t, v)
		_, err := r.backend.Attach(t.Context(), v, backends.Attachment{ID: newID("att")})
		require.ErrorIs(t, err, backends.ErrDataLoss)
		require.ErrorIs(t, r.backend.Snapshot(t.Context(), v, s), backends.ErrDataLoss)
		require.ErrorIs(t, r.backend.Clone(t.Context(), v, other), backends.ErrDataLoss)
		_, err = r.backend.Usage(t.Context(), v)
		require.ErrorIs(t, err, backends.ErrDataLoss)
		larger := v
		larger.SizeBytes *= 2
		require.ErrorIs(t, r.backend.Grow(t.Context(), larger), backends.ErrDataLoss)
		require.NoError(t, r.backend.DeleteSnapshot(t.Context(), s))
		r.delete(v)
	})
}

// testContext calls with a context that has ended: the call fails or does what
// it should, and leaves nothing.
func testContext(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		source := r.create(a)
		cut := r.snapshot(source)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func(v backends.Volume) error{
			"create":  func(v backends.Volume) error { return r.backend.Create(ended, v) },
			"restore": func(v backends.Volume) error { return r.backend.Restore(ended, cut, v) },
			"clone":   func(v backends.Volume) error { return r.backend.Clone(ended, source, v) },
		} {
			v := r.volume(r.plan(a, a.bytes))
			err := call(v)
			require.ErrorIs(t, err, context.Canceled, name)
			r.requireEmpty(v.Dir)
			require.NoError(t, r.backend.Create(t.Context(), v), "after %s was cancelled", name)
		}
		s := r.snapshotOf(source)
		require.ErrorIs(t, r.backend.Snapshot(ended, source, s), context.Canceled)
		r.requireEmpty(s.Dir)
	})
}
