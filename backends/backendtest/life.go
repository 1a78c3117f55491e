package backendtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// testLife walks a volume through its life, with every call made twice, and
// through a second attachment.
func testLife(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.attach()
		_, err := r.node.Stats(t.Context(), backends.Staged{VolumeID: u.volume.ID, Path: r.newDir("stage"), Block: a.block}, r.target())
		require.ErrorIs(t, err, backends.ErrNotFound, "nothing is staged")

		q := u.stageRequest()
		u.staged, err = r.node.Stage(t.Context(), q)
		require.NoError(t, err)
		again, err := r.node.Stage(t.Context(), q)
		require.NoError(t, err, "a repeated call")
		require.Equal(t, u.staged, again)
		require.Equal(t, u.volume.ID, again.VolumeID)
		require.Equal(t, q.Path, again.Path)
		require.Equal(t, a.block, again.Block)
		u.requireStaged(true)
		u.requireSize(u.staged.Path)

		target := u.publish(backends.PublishRequest{})
		require.NoError(t, r.node.Publish(t.Context(), u.staged, backends.PublishRequest{Path: target}), "a repeated call")
		u.requireSize(target)
		info, err := os.Stat(target)
		require.NoError(t, err)
		require.Equal(t, !a.block, info.IsDir())
		sum := u.write(target, "life")

		second := u.publish(backends.PublishRequest{})
		u.requireData(second, sum)
		sum = u.write(second, "written at the second target")
		u.unpublish(second)
		u.requirePublished(target, true)
		u.requireData(target, sum)
		_, err = r.node.Stats(t.Context(), u.staged, second)
		require.ErrorIs(t, err, backends.ErrNotFound, "it is not there any more")

		u.unpublish(target)
		u.unpublish(target)
		u.unstage()
		u.unstage()
		u.detach()

		u.up()
		u.requireData(u.path, sum)
		u.down()
	})
}

// testReadOnlyAttachment brings a volume to a node that may only read.
func testReadOnlyAttachment(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "before")
		u.down()

		u.attachAs(backends.Attachment{ID: newID("att"), ReadOnly: true})
		u.stage()
		require.True(t, u.staged.ReadOnly)
		u.publish(backends.PublishRequest{})
		u.requireData(u.path, sum)
		u.requireNoWrite(u.path)
		u.down()
	})
}

// testKilledStage unstages with the record of a caller that was killed before
// Stage returned: it knows the volume and the path, no more.
func testKilledStage(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.attach()
		half := backends.Staged{VolumeID: u.volume.ID, Path: r.newDir("stage"), Block: a.block}
		require.NoError(t, r.node.Unstage(t.Context(), half), "it was killed before it began")

		u.stage()
		half.Path = u.staged.Path
		foreign := half
		foreign.VolumeID = newID("vol")
		require.NoError(t, r.node.Unstage(t.Context(), foreign))
		u.requireStaged(true)
		require.NoError(t, r.node.Unstage(t.Context(), half))
		if !u.isDevice() {
			u.requireStaged(false)
		}
		r.requireEmpty(half.Path)
		u.stage()
	})
}

// testTypes stages a file system as one of another type, which would be the end
// of its data.
func testTypes(t *testing.T, h Harness) {
	for _, made := range h.accesses() {
		for _, asked := range h.accesses() {
			if made.block || asked.block || made.fsType == asked.fsType {
				continue
			}
			t.Run(made.name+" as "+asked.name, func(t *testing.T) {
				t.Parallel()
				h.needs(t, made, Types)
				r := newRig(t, h)
				large := made
				large.bytes = max(made.bytes, asked.bytes)
				u := r.use(r.create(large), large)
				u.up()
				sum := u.write(u.path, "kept")
				u.unpublish(u.path)
				u.unstage()

				q := u.stageRequest()
				q.FSType = asked.fsType
				_, err := r.node.Stage(t.Context(), q)
				require.ErrorIs(t, err, backends.ErrPrecondition)
				r.requireEmpty(q.Path)

				u.stage()
				u.publish(backends.PublishRequest{})
				u.requireData(u.path, sum)
			})
		}
	}
	t.Run("one that nobody has", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, h)
		a := h.accesses()[1]
		u := r.use(r.create(a), a)
		u.attach()
		q := u.stageRequest()
		q.FSType = "no-such-type"
		_, err := r.node.Stage(t.Context(), q)
		require.ErrorIs(t, err, backends.ErrInvalid)
		require.ErrorContains(t, err, "no-such-type")
		r.requireEmpty(q.Path)
	})
}

// requireNoWrite tries to write as root does.
func (u *use) requireNoWrite(path string) {
	u.r.t.Helper()
	if u.r.h.lacks(u.a, ReadOnly) != "" || u.r.h.lacks(u.a, Data) != "" {
		return // shown by the test of read-only publications
	}
	if u.a.block {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte("x"), 0)
			if err == nil {
				err = f.Sync()
			}
			require.NoError(u.r.t, f.Close())
		}
		require.True(u.r.t, isReadOnly(err), "write to the device: %v", err)
		return
	}
	require.True(u.r.t, isReadOnly(os.WriteFile(filepath.Join(path, "new"), nil, 0o600)), "make a file")
	require.True(u.r.t, isReadOnly(os.Truncate(filepath.Join(path, "data"), 0)), "truncate a file")
	require.True(u.r.t, isReadOnly(os.Remove(filepath.Join(path, "data"))), "remove a file")
}
