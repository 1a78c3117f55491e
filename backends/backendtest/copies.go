package backendtest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// testCopies cuts, restores and clones a volume at rest, to volumes of its size
// and larger ones, and reads what they hold.
func testCopies(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		old := u.write(u.path, "old")
		u.down()
		s := r.snapshot(u.volume)

		u.up()
		now := u.write(u.path, "new")
		u.down()
		for name, c := range map[string]struct {
			bytes int64
			make  func(v backends.Volume) error
			holds data
		}{
			"restored":        {a.bytes, func(v backends.Volume) error { return r.backend.Restore(t.Context(), s, v) }, old},
			"restored larger": {2 * a.bytes, func(v backends.Volume) error { return r.backend.Restore(t.Context(), s, v) }, old},
			"cloned":          {a.bytes, func(v backends.Volume) error { return r.backend.Clone(t.Context(), u.volume, v) }, now},
			"cloned larger":   {2 * a.bytes, func(v backends.Volume) error { return r.backend.Clone(t.Context(), u.volume, v) }, now},
		} {
			v := r.volume(r.plan(a, c.bytes))
			require.NoError(t, c.make(v), name)
			copied := r.use(v, a)
			copied.up()
			copied.requireSize(copied.path)
			copied.requireData(copied.path, c.holds)
			copied.requireData(copied.path, copied.write(copied.path, name))
			copied.down()
			r.delete(v)
		}

		u.up()
		u.requireData(u.path, now)
		u.down()
		r.delete(u.volume)
		v := r.volume(r.plan(a, a.bytes))
		require.NoError(t, r.backend.Restore(t.Context(), s, v), "the snapshot outlives its source")
		survivor := r.use(v, a)
		survivor.up()
		survivor.requireData(survivor.path, old)
		survivor.down()
		require.NoError(t, r.backend.DeleteSnapshot(t.Context(), s))
		require.NoError(t, r.backend.DeleteSnapshot(t.Context(), s), "a repeated call")
		r.requireEmpty(s.Dir)
		survivor.up()
		survivor.requireData(survivor.path, old)
		survivor.down()
	})
}

// hold calls copy while the writers of u are held still, as the array does.
func (u *use) hold(published bool, copy func()) {
	u.r.t.Helper()
	release, err := u.r.node.Hold(u.r.t.Context(), u.staged, backends.Hold{Published: published})
	require.NoError(u.r.t, err)
	copy()
	require.NoError(u.r.t, release())
}

// testLiveCopies copies a volume that is published for writing.
func testLiveCopies(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "in use")
		if h.lacks(a, Live) != "" {
			_, err := r.node.Hold(t.Context(), u.staged, backends.Hold{Published: true})
			require.ErrorIs(t, err, backends.ErrPrecondition)
			u.hold(false, func() {})
			h.needs(t, a, Live)
		}
		s, clone := r.snapshotOf(u.volume), r.volume(r.plan(a, a.bytes))
		u.hold(true, func() {
			require.NoError(t, r.backend.Snapshot(t.Context(), u.volume, s))
			require.NoError(t, r.backend.Clone(t.Context(), u.volume, clone))
		})
		require.NoError(t, r.node.Recover(t.Context(), u.staged), "nothing is held")
		now := u.write(u.path, "it can be written again")

		restored := r.volume(r.plan(a, a.bytes))
		require.NoError(t, r.backend.Restore(t.Context(), s, restored))
		u.requireData(u.path, now)
		u.down()
		for _, v := range []backends.Volume{restored, clone} {
			copied := r.use(v, a)
			copied.up()
			copied.requireData(copied.path, sum)
			copied.down()
		}
	})
	t.Run("left held by a killed process", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
			u := r.use(r.create(a), a)
			u.up()
			h.needs(t, a, Live)
			release, err := r.node.Hold(t.Context(), u.staged, backends.Hold{Published: true})
			require.NoError(t, err)
			require.NoError(t, r.node.Recover(t.Context(), u.staged))
			u.requireData(u.path, u.write(u.path, "it can be written again"))
			// The holder finds out that its cut may not be consistent, or
			// nothing was held by it.
			_ = release()
			require.NoError(t, r.node.Recover(t.Context(), u.staged))
		})
	})
}

// testTwins stages a volume and its copies beside each other.
func testTwins(t *testing.T, h Harness) {
	forEachAccess(t, h, []Lack{Twins}, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "source")
		u.down()
		s := r.snapshot(u.volume)
		u.up()
		var twins []*use
		for range 2 {
			v := r.volume(r.plan(a, a.bytes))
			require.NoError(t, r.backend.Restore(t.Context(), s, v))
			twins = append(twins, r.use(v, a))
			twins[len(twins)-1].up()
		}
		own := twins[0].write(twins[0].path, "a twin")
		u.requireData(u.path, sum)
		twins[1].requireData(twins[1].path, sum)
		twins[0].requireData(twins[0].path, own)
		for _, twin := range twins {
			twin.down()
		}
	})
}

// testUnfinished repeats calls that were killed halfway, or that were answered
// to nobody.
func testUnfinished(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		first := u.write(u.path, "first")
		u.down()
		s, v := r.snapshotOf(u.volume), r.volume(r.plan(a, a.bytes))
		leave := func(dir string) {
			if h.Unfinished != nil {
				h.Unfinished(t, dir)
			}
		}
		leave(s.Dir)
		require.NoError(t, r.backend.DeleteSnapshot(t.Context(), s))
		r.requireEmpty(s.Dir)
		leave(s.Dir)
		require.NoError(t, r.backend.Snapshot(t.Context(), u.volume, s))
		u.up()
		second := u.write(u.path, "second")
		u.down()
		require.NoError(t, r.backend.Snapshot(t.Context(), u.volume, s), "a repeated call cuts anew")

		leave(v.Dir)
		require.NoError(t, r.backend.Restore(t.Context(), s, v))
		require.NoError(t, r.backend.Restore(t.Context(), s, v), "a repeated call")
		copied := r.use(v, a)
		copied.up()
		if first != "" {
			require.NotEqual(t, first, second)
		}
		copied.requireData(copied.path, second)
		copied.down()
		r.delete(v)

		leave(v.Dir)
		require.NoError(t, r.backend.Clone(t.Context(), u.volume, v))
		require.NoError(t, r.backend.Clone(t.Context(), u.volume, v), "a repeated call")
		copied.up()
		copied.requireData(copied.path, second)
		copied.down()
	})
	t.Run("of a snapshot that is gone", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, []Lack{Data}, func(t *testing.T, r *rig, a access) {
			s, v := r.snapshot(r.create(a)), r.volume(r.plan(a, a.bytes))
			require.NoError(t, r.backend.DeleteSnapshot(t.Context(), s))
			err := r.backend.Restore(t.Context(), s, v)
			require.True(t, errors.Is(err, backends.ErrDataLoss) || errors.Is(err, backends.ErrNotFound), "%v", err)
			r.requireEmpty(v.Dir)
		})
	})
}
