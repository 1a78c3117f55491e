//go:build linux

package crash_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/internal/testenv"
)

// pages leaves the file system of dir so many free pages, by a file that fills
// the rest; -1 removes that file.
func pages(t *testing.T, dir string, n int64) {
	t.Helper()
	filler := filepath.Join(dir, "filler")
	require.NoError(t, os.RemoveAll(filler))
	if n < 0 {
		return
	}
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	f, err := os.Create(filler)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	if size := (int64(st.Bfree) - n) * st.Bsize; size > 0 {
		require.NoError(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	}
}

// TestFullDisk makes every call of a life on a disk that is full, then with a
// page more, and so on until the call gets through: each of its writes is the one
// that fails once. What fails says that space is missing, leaves nothing, and
// costs nobody a byte.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, capability := range map[string]*csi.VolumeCapability{"file system": mountCapability("ext4"), "block": blockCapability()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := testenv.SmallTmpfsDir(t, 16*mib)
			r := newRigIn(t, dir, filepath.Join(t.TempDir(), "tmp"), "loop", newCoverage())
			liveOnFullDisk(t, r, capability)
		})
	}
}

func liveOnFullDisk(t *testing.T, r *rig, capability *csi.VolumeCapability) {
	l := &life{t: t, r: r, name: "life", capability: capability}
	witness := l.place("-witness", capability)
	witness.create()
	witness.up()
	witness.write()
	free := r.free(t)
	ctx := t.Context()
	v := l.place("", capability)
	var cut string
	failed := 0
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"create", func() error {
			resp, err := r.CreateVolume(ctx, v.createRequest())
			v.id = resp.GetVolume().GetVolumeId()
			return err
		}},
		{"attach", func() error {
			resp, err := r.ControllerPublishVolume(ctx, v.attachRequest())
			v.publishContext = resp.GetPublishContext()
			return err
		}},
		{"stage", func() error { _, err := r.NodeStageVolume(ctx, v.stageRequest()); return err }},
		{"publish", func() error { _, err := r.NodePublishVolume(ctx, v.publishRequest()); return err }},
		{"snapshot", func() error {
			resp, err := r.CreateSnapshot(ctx, l.snapshotRequest(v, "-cut"))
			cut = resp.GetSnapshot().GetSnapshotId()
			return err
		}},
		{"expand", func() error {
			_, err := r.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * mib}})
			return err
		}},
		{"unpublish", func() error { _, err := r.NodeUnpublishVolume(ctx, v.unpublishRequest()); return err }},
		{"unstage", func() error { _, err := r.NodeUnstageVolume(ctx, v.unstageRequest()); return err }},
		{"detach", func() error { _, err := r.ControllerUnpublishVolume(ctx, v.detachRequest()); return err }},
		{"delete snapshot", func() error { _, err := r.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: cut}); return err }},
		{"delete", func() error { _, err := r.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id}); return err }},
	} {
		for n := int64(0); ; n += 1 + n/8 {
			pages(t, r.dir, n)
			err := c.call()
			if err == nil {
				pages(t, r.dir, -1)
				break
			}
			failed++
			t.Logf("%s with %d pages: %v", c.name, n, err)
			if c.name == "expand" {
				// The specification has no RESOURCE_EXHAUSTED for it.
				require.Equal(t, codes.OutOfRange, status.Code(err), "%v", err)
			} else {
				require.Equal(t, codes.ResourceExhausted, status.Code(err), "%s: %v", c.name, err)
			}
			r.requireExplained(t)
			witness.requireData()
			require.Less(t, n, int64(4096), "%s fails on a disk that is empty: %v", c.name, err)
		}
		if c.name == "publish" {
			v.write()
		}
		r.requireExplained(t)
	}
	require.Positive(t, failed)
	require.Equal(t, free, r.free(t))
	v.id = ""
	l.end()
	r.requireOnly(t, r.requireExplained(t), nil, nil)
	r.child.end(t)
}
