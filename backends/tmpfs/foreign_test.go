//go:build linux

package tmpfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestUnpublishLeavesWhatSomebodyElseMountedAtTheTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.stage(r.request(r.create(backends.Layout{SizeBytes: mebibyte})))
	target := r.publish(s, backends.PublishRequest{})
	require.NoError(t, mount.Unmount(target))
	require.NoError(t, mount.Mount(t.Context(), "theirs", target, "tmpfs", mount.Options{}))
	require.NoError(t, r.node.Unpublish(t.Context(), s, target))
	require.Equal(t, "theirs", entryAt(t, target).Source)
	require.NoError(t, mount.Unmount(target))
}

func TestPublishRefusesADirectoryWithEntries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.stage(r.request(r.create(backends.Layout{SizeBytes: mebibyte})))
	target := r.newDir("pod")
	write(t, filepath.Join(target, "file"), "theirs")
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target}), backends.ErrExists)
}

func TestADetachedBlockVolumeShowsNoOtherVolumeAtItsTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	layout := backends.Layout{SizeBytes: mebibyte, Block: true}
	v := r.create(layout)
	a := backends.Attachment{ID: newID("att")}
	pc, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	s := r.stage(backends.StageRequest{VolumeID: v.ID, PublishContext: pc, Path: r.newDir("stage"), Block: true})
	target := r.publish(s, backends.PublishRequest{})
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	other := r.create(layout)
	q := r.request(other)
	q.Block = true
	theirs := r.stage(q)
	require.NotEqual(t, s.Device, theirs.Device)
	data, err := os.ReadFile(target)
	// Kernels before 6.5 must leave the first sector of a device that is fenced.
	require.LessOrEqual(t, len(data), 512, "%v", err)
}
