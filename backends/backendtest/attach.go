package backendtest

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

func testAttach(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		require.NoError(t, r.backend.Detach(t.Context(), u.volume, backends.Attachment{ID: newID("att")}), "never attached is no error")
		u.attach()
		again, err := r.backend.Attach(t.Context(), u.volume, u.attachment)
		require.NoError(t, err, "a repeated call")
		require.Equal(t, u.publishContext, again)
		for key, value := range again {
			require.LessOrEqual(t, len(key)+len(value), 512, "a publish context is small")
		}
		require.NoError(t, r.backend.Detach(t.Context(), u.volume, backends.Attachment{ID: newID("att")}), "not this attachment")
		u.stage()
		u.unstage()

		first := u.publishContext
		u.detach()
		u.detach()
		u.attach()
		require.NotEqual(t, first, u.publishContext, "another attachment")
		u.stage()
		u.unstage()
		u.detach()
	})
	t.Run("a second attachment", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, []Lack{OneAttachment}, func(t *testing.T, r *rig, a access) {
			u := r.use(r.create(a), a)
			u.attach()
			_, err := r.backend.Attach(t.Context(), u.volume, backends.Attachment{ID: newID("att")})
			require.ErrorIs(t, err, backends.ErrPrecondition)
			require.ErrorContains(t, err, u.attachment.ID, "the other is named")
			other := u.attachment
			other.ReadOnly = true
			_, err = r.backend.Attach(t.Context(), u.volume, other)
			require.ErrorIs(t, err, backends.ErrPrecondition)
			u.stage()
		})
	})
	t.Run("the publish context of an earlier attachment", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, []Lack{Stale}, func(t *testing.T, r *rig, a access) {
			u := r.use(r.create(a), a)
			u.attach()
			u.detach()
			_, err := r.node.Stage(t.Context(), u.stageRequest())
			require.ErrorIs(t, err, backends.ErrNotFound)
			stale := u.publishContext
			u.attach()
			u.publishContext = stale
			_, err = r.node.Stage(t.Context(), u.stageRequest())
			require.ErrorIs(t, err, backends.ErrNotFound)
		})
	})
	t.Run("no publish context", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
			u := r.use(r.create(a), a)
			for _, pc := range []map[string]string{nil, {}, {"another-driver.example.com/device": "/dev/null"}} {
				u.publishContext = pc
				_, err := r.node.Stage(t.Context(), u.stageRequest())
				require.ErrorIs(t, err, backends.ErrNotFound)
			}
		})
	})
}

// testFence detaches a device that somebody writes to.
func testFence(t *testing.T, h Harness) {
	r := newRig(t, h)
	a := h.accesses()[0]
	h.needs(t, a, Devices, Fence)
	u := r.use(r.create(a), a)
	u.up()
	sum := u.write(u.path, "before")
	f, err := os.OpenFile(u.path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()

	u.detach()
	_, err = f.WriteAt(make([]byte, 4096), 0)
	require.Error(t, errors.Join(err, f.Sync()), "a write after the detach")
	u.unpublish(u.path) // needs no device
	require.NoError(t, r.node.Unstage(t.Context(), u.staged), "needs no device")
	u.detach()

	// The device is somebody's still, so the volume is not attached anew.
	_, err = r.backend.Attach(t.Context(), u.volume, backends.Attachment{ID: newID("att")})
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.NoError(t, f.Close())
	u.up()
	u.requireData(u.path, sum)
	u.down()
}
