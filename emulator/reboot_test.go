//go:build linux

package emulator_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
)

// reboot takes away what a reboot would: the emulator is gone already, now its
// mounts and loop devices go.
func reboot(t *testing.T, v *volume, state string) {
	t.Helper()
	require.NoError(t, mount.Detach(v.target))
	require.NoError(t, mount.Detach(v.staging))
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	images, err := filepath.Glob(filepath.Join(state, "volumes", "*", "image"))
	require.NoError(t, err)
	bound, err := loopdev.Scan(t.Context())
	require.NoError(t, err)
	for _, image := range images {
		info, err := os.Stat(image)
		require.NoError(t, err)
		for _, s := range bound {
			if s.BackingInode != inodeOf(info) {
				continue
			}
			d, err := pool.Adopt(s.Index, s.Name)
			require.NoError(t, err)
			_, err = pool.Detach(t.Context(), d)
			require.NoError(t, err)
		}
	}
}

// TestReboot stages a volume again with the publish context from before: an
// orchestrator does not call ControllerPublishVolume again.
func TestReboot(t *testing.T) {
	t.Parallel()
	b := backendCases()[0]
	state := shortDir(t)
	config := emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}}
	d := start(t, config)
	v := d.create("v", mountCapability("ext4"), 64*mib)
	v.up()
	sum := v.write(mib)
	d.stop()
	reboot(t, v, state)

	config.Backend = b.open(t, state)
	v.d = start(t, config)
	_, err := v.d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
	wantCode(t, codes.NotFound, err)
	_, err = v.d.NodePublishVolume(t.Context(), v.publishRequest())
	wantCode(t, codes.FailedPrecondition, err)
	v.stage()
	v.publish()
	require.Equal(t, sum, v.read(mib))
	v.down()
	v.delete()
}

// TestTmpfsLosesItsBytesWithAReboot never shows an empty volume in place of a
// lost one.
func TestTmpfsLosesItsBytesWithAReboot(t *testing.T) {
	t.Parallel()
	b := backendCases()[1]
	state := shortDir(t)
	config := emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}}
	d := start(t, config)
	v := d.create("v", mountCapability(""), 16*mib)
	v.up()
	v.write(mib)
	d.stop()
	reboot(t, v, state)
	require.NoError(t, mount.Detach(filepath.Join(state, "volumes", v.id, "data")))

	config.Backend = b.open(t, state)
	v.d = start(t, config)
	_, err := v.d.NodeStageVolume(t.Context(), v.stageRequest())
	wantCode(t, codes.FailedPrecondition, err)
	require.ErrorContains(t, err, "restarted")
	v.delete()
}

// TestSharedByNodes lets two nodes of one kernel write to a file system, and
// cuts a snapshot meanwhile: the second node finds it frozen by the first.
func TestSharedByNodes(t *testing.T) {
	t.Parallel()
	b := backendCases()[0]
	state, second := shortDir(t), filepath.Join(shortDir(t), "csi.sock")
	d := start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{
		{Name: "node-1"}, {Name: "node-2", Endpoint: "unix://" + second},
	}})
	shared := withMode(mountCapability("ext4"), csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	v := d.create("v", shared, 64*mib)
	v.up()
	other := &driver{t: t, dir: filepath.Join(d.dir, "node-2"), clients: clients{d.IdentityClient, d.ControllerClient, d.GroupControllerClient, dial(t, second).NodeClient}}
	w := other.place(v.created, "v", shared)
	require.Equal(t, "node-2", w.node)
	w.up()
	sum := v.write(mib)
	require.Equal(t, sum, w.read(mib))
	snap := d.snapshot("cut", v.id)
	v.write(mib)
	w.unpublish()
	w.unstage()
	w.detach()
	v.down()
	v.delete()
	restored := d.create("restored", mountCapability("ext4"), 64*mib, fromSnapshot(snap.GetSnapshotId()))
	restored.up()
	require.Equal(t, sum, restored.read(mib))
	restored.down()
	restored.delete()
	_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
	require.NoError(t, err)
}
