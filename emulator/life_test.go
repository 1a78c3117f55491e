package emulator_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
)

// TestBytesSurviveAWholeLife walks a volume of every kind through its life and
// compares a checksum of what was written at each step.
func TestBytesSurviveAWholeLife(t *testing.T) {
	t.Parallel()
	for _, b := range backendCases() {
		for _, capability := range b.capabilities {
			t.Run(b.name+" "+kindOf(capability), func(t *testing.T) {
				t.Parallel()
				liveOnce(t, b, capability)
			})
		}
	}
}

func kindOf(c *csi.VolumeCapability) string {
	if c.GetBlock() != nil {
		return "block"
	}
	if t := c.GetMount().GetFsType(); t != "" {
		return t
	}
	return "filesystem"
}

const written = 3*mib + 4096

func liveOnce(t *testing.T, b backendCase, capability *csi.VolumeCapability) {
	state := shortDir(t)
	config := emulator.Config{StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}}
	config.Backend = b.open(t, state)
	d := start(t, config)

	v := d.create("life", capability, b.size)
	v.up()
	sum := ""
	if b.data {
		sum = v.write(written)
	}
	check := func(v *volume) {
		t.Helper()
		if b.data {
			require.Equal(t, sum, v.read(written))
		}
	}
	check(v)
	v.down()
	v.up()
	check(v)

	t.Log("restart while it is in use")
	d.stop()
	check(v)
	config.Backend = b.open(t, state)
	again := start(t, config)
	again.dir, v.d = d.dir, again
	d = again
	check(v)
	v.stage()
	v.publish()
	check(v)

	var snap *csi.Snapshot
	copying(t, b, v, func() { snap = d.snapshot("cut", v.id) })
	require.Equal(t, v.created.GetCapacityBytes(), snap.GetSizeBytes())
	restored := d.create("restored", capability, 2*b.size, fromSnapshot(snap.GetSnapshotId()))
	restored.up()
	check(restored)
	requireSize(t, b, restored, 2*b.size)
	restored.down()
	restored.delete()

	var clone *volume
	copying(t, b, v, func() { clone = d.create("clone", capability, b.size, fromVolume(v.id)) })
	clone.up()
	check(clone)
	clone.down()
	clone.delete()

	grow(t, b, v, 2*b.size)
	check(v)
	v.down()
	v.delete()
	_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
	require.NoError(t, err)
}

// copying runs f, which copies a volume in use; where the backend cannot hold
// one still, it asserts the refusal and takes the volume out of use first.
func copying(t *testing.T, b backendCase, v *volume, f func()) {
	t.Helper()
	if b.name == "tmpfs" && v.capability.GetBlock() == nil {
		_, err := v.d.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "refused", SourceVolumeId: v.id})
		wantCode(t, codes.FailedPrecondition, err)
		v.down()
		defer v.up()
	}
	f()
}

// grow expands a volume in use; ext4 without the capability to do so online
// grows at the next stage.
func grow(t *testing.T, b backendCase, v *volume, size int64) {
	t.Helper()
	resp, err := v.d.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: v.capability,
	})
	require.NoError(t, err)
	require.Equal(t, size, resp.GetCapacityBytes())
	if resp.GetNodeExpansionRequired() {
		_, err := v.d.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
			VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		})
		if err != nil {
			require.ErrorContains(t, err, "CAP_SYS_RESOURCE")
			v.unpublish()
			v.unstage()
			v.stage()
			v.publish()
		}
	}
	requireSize(t, b, v, size)
}

// requireSize compares what the volume shows with the size that was asked for:
// exactly for a device, less its own structures for a file system.
func requireSize(t *testing.T, b backendCase, v *volume, size int64) {
	t.Helper()
	resp, err := v.d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
	require.NoError(t, err)
	total := resp.GetUsage()[0].GetTotal()
	if v.capability.GetBlock() != nil || b.name != "loop" {
		require.Equal(t, size, total)
		return
	}
	require.LessOrEqual(t, total, size)
	require.Greater(t, total, size*8/10)
}

// TestFilesystemIsLimitedToItsSize writes past the end of a volume.
func TestFilesystemIsLimitedToItsSize(t *testing.T) {
	t.Parallel()
	for _, b := range backendCases() {
		if !b.data {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			state := shortDir(t)
			d := start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}})
			v := d.create("small", mountCapability(""), 16*mib)
			v.up()
			f, err := os.Create(filepath.Join(v.target, "big"))
			require.NoError(t, err)
			chunk := make([]byte, mib)
			for n := 0; err == nil; n++ {
				require.Less(t, n, 17, "more was written than the volume holds")
				_, err = f.Write(chunk)
			}
			require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
			require.NoError(t, f.Close())
			v.down()
			v.delete()
		})
	}
}
