//go:build linux

package tmpfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
)

// reports reopens the store and returns what was reported of each id.
func (r *rig) reports(snapshots []backends.Snapshot, volumes ...backends.Held) map[string]error {
	r.t.Helper()
	got := map[string]error{}
	err := r.backend.Reopen(r.t.Context(), volumes, snapshots, func(id string, err error) { got[id] = err })
	require.NoError(r.t, err)
	return got
}

func TestReopenFindsVolumesOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, block := r.create(backends.Layout{SizeBytes: mebibyte}), r.create(backends.Layout{SizeBytes: mebibyte, Block: true})
	write(t, filepath.Join(v.Dir, "data", "file"), "kept")
	snapshot := r.snapshot(v)
	a := backends.Attachment{ID: newID("att")}
	pc, err := r.backend.Attach(t.Context(), block, a)
	require.NoError(t, err)

	r.open()
	require.Empty(t, r.reports([]backends.Snapshot{snapshot}, backends.Held{Volume: v}, backends.Held{Volume: block, Attachment: &a}))
	require.Equal(t, "kept", read(t, filepath.Join(v.Dir, "data", "file")))
	require.Equal(t, "kept", read(t, filepath.Join(snapshot.Dir, "data", "file")))
	again, err := r.backend.Attach(t.Context(), block, a)
	require.NoError(t, err)
	require.Equal(t, pc, again)
}

func TestReopenAfterARebootReportsDataLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, block := r.create(backends.Layout{SizeBytes: mebibyte}), r.create(backends.Layout{SizeBytes: mebibyte, Block: true})
	snapshot := r.snapshot(v)
	q := r.request(v)
	s, err := r.node.Stage(t.Context(), q)
	require.NoError(t, err)
	for _, dir := range []string{s.Path, filepath.Join(v.Dir, "data"), filepath.Join(block.Dir, "block"), filepath.Join(snapshot.Dir, "data")} {
		require.NoError(t, mount.Unmount(dir)) // as a reboot does
	}
	a := backends.Attachment{ID: newID("att")}

	r.open()
	got := r.reports([]backends.Snapshot{snapshot}, backends.Held{Volume: v, Attachment: &a}, backends.Held{Volume: block, Attachment: &a})
	require.Len(t, got, 3)
	for id, err := range got {
		require.ErrorIs(t, err, backends.ErrDataLoss, id)
	}
	_, err = r.backend.Attach(t.Context(), v, a)
	require.ErrorIs(t, err, backends.ErrDataLoss)
	_, err = r.backend.Attach(t.Context(), block, a)
	require.ErrorIs(t, err, backends.ErrDataLoss)
	_, err = r.node.Stage(t.Context(), q)
	require.ErrorIs(t, err, backends.ErrDataLoss, "never an empty volume")
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)
	restored := r.volume(v.Layout)
	require.ErrorIs(t, r.backend.Restore(t.Context(), snapshot, restored), backends.ErrDataLoss)
	require.ErrorIs(t, r.backend.Grow(t.Context(), v), backends.ErrDataLoss)
	_, err = r.backend.Usage(t.Context(), v)
	require.ErrorIs(t, err, backends.ErrDataLoss)
	requireEmpty(t, filepath.Join(v.Dir, "data"))
}

func TestReopenUnmountsWhatNothingExplains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	kept, v, block := r.create(backends.Layout{SizeBytes: mebibyte}), r.create(backends.Layout{SizeBytes: mebibyte}), r.create(backends.Layout{SizeBytes: mebibyte, Block: true})
	a := backends.Attachment{ID: newID("att")}
	_, err := r.backend.Attach(t.Context(), block, a)
	require.NoError(t, err)
	// A copy that was killed before it was whole.
	unfinished := filepath.Join(kept.Dir, "data.tmp")
	require.NoError(t, os.Mkdir(unfinished, 0o700))
	require.NoError(t, mount.Mount(t.Context(), "csiemu:"+kept.ID, unfinished, "tmpfs", mount.Options{}))
	// A volume whose record is damaged is set aside, with what it holds.
	damaged := r.create(backends.Layout{SizeBytes: mebibyte})
	aside := filepath.Join(r.dir, "damaged", "volumes-"+damaged.ID+"-1")
	require.NoError(t, os.Mkdir(filepath.Dir(aside), 0o700))
	require.NoError(t, os.Rename(damaged.Dir, aside))
	t.Cleanup(func() { require.NoError(t, mount.Unmount(filepath.Join(aside, "data"))) })
	// What somebody else mounted is not touched.
	foreign := filepath.Join(r.dir, "volumes", "other", "data")
	require.NoError(t, os.MkdirAll(foreign, 0o700))
	require.NoError(t, mount.Mount(t.Context(), "other", foreign, "tmpfs", mount.Options{}))
	t.Cleanup(func() { require.NoError(t, mount.Unmount(foreign)) })

	r.open()
	require.Empty(t, r.reports(nil, backends.Held{Volume: kept}))
	left, err := mount.ListUnder(r.dir)
	require.NoError(t, err)
	var points []string
	for _, e := range left {
		points = append(points, e.MountPoint)
	}
	require.ElementsMatch(t, []string{filepath.Join(kept.Dir, "data"), filepath.Join(aside, "data"), foreign}, points)
	requireEmpty(t, v.Dir)
	requireEmpty(t, block.Dir)
	_, err = loopdev.Find(t.Context(), a.ID, -1, loopdev.Options{})
	require.ErrorIs(t, err, loopdev.ErrNotBound)
}
