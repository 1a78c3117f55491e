package backendtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// testReopen starts a later process over volumes that are in use.
func testReopen(t *testing.T, h Harness) {
	forEachAccess(t, h, []Lack{Persistence}, func(t *testing.T, r *rig, a access) {
		u, rest := r.use(r.create(a), a), r.create(a)
		u.up()
		sum := u.write(u.path, "before")
		s := r.snapshot(rest)

		require.Empty(t, r.reopen([]backends.Held{u.held(), {Volume: rest}}, []backends.Snapshot{s}))
		u.requireStaged(true)
		u.requirePublished(u.path, true)
		u.requireData(u.path, sum)
		pc, err := r.backend.Attach(t.Context(), u.volume, u.attachment)
		require.NoError(t, err)
		require.Equal(t, u.publishContext, pc, "the device is the same")
		u.requireSize(u.path)

		u.volume.SizeBytes *= 2
		require.NoError(t, r.backend.Grow(t.Context(), u.volume))
		if a.block {
			u.requireSize(u.path)
		}
		sum = u.write(u.path, "after")
		u.requireData(u.path, sum)
		readOnly := u.publish(backends.PublishRequest{ReadOnly: true})
		u.requireData(readOnly, sum)

		require.Empty(t, r.reopen([]backends.Held{u.held(), {Volume: rest}}, []backends.Snapshot{s}))
		u.requireData(readOnly, sum)
		u.unpublish(readOnly)
		u.down()
		v := r.volume(r.plan(a, a.bytes))
		require.NoError(t, r.backend.Restore(t.Context(), s, v))
		u.up()
		u.requireData(u.path, sum)
	})
}

// testReopenAfterReboot starts a process whose records say that volumes are
// attached, which no device shows, and which holds bytes that are gone.
func testReopenAfterReboot(t *testing.T, h Harness) {
	forEachAccess(t, h, []Lack{Persistence}, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "before")
		u.down()
		volumes := []backends.Held{u.held()}
		if h.Lose != nil {
			lost := r.create(a)
			h.Lose(t, lost)
			volumes = append(volumes, backends.Held{Volume: lost, Attachment: &backends.Attachment{ID: newID("att")}})
		}

		reported := r.reopen(volumes, nil)
		require.Len(t, reported, len(volumes)-1)
		for id, err := range reported {
			require.Equal(t, volumes[1].ID, id)
			require.ErrorIs(t, err, backends.ErrDataLoss)
		}
		// The orchestrator does not attach again after a reboot.
		u.stage()
		u.publish(backends.PublishRequest{})
		u.requireData(u.path, sum)
		u.down()
		for _, v := range volumes[1:] {
			r.delete(v.Volume)
		}
	})
}

// testReopenFrees starts a process whose records do not explain what an earlier
// one made.
func testReopenFrees(t *testing.T, h Harness) {
	forEachAccess(t, h, []Lack{Persistence}, func(t *testing.T, r *rig, a access) {
		detached, kept := r.use(r.create(a), a), r.use(r.create(a), a)
		detached.attach()
		kept.up()
		sum := kept.write(kept.path, "kept")

		require.Empty(t, r.reopen([]backends.Held{kept.held(), {Volume: detached.volume}}, nil))
		kept.requireData(kept.path, sum)
		if h.lacks(a, Stale) == "" {
			_, err := r.node.Stage(t.Context(), detached.stageRequest())
			require.ErrorIs(t, err, backends.ErrNotFound, "no record says that it is attached")
		}
		detached.up()
		detached.down()
		kept.down()
		kept.up()
		kept.requireData(kept.path, sum)
	})
}
