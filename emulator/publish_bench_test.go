//go:build linux

package emulator_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/ceiling"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

// BenchmarkPublish publishes a staged ext4 at a target over a unix socket; beside
// it, in turns, goes a bare bind of the same file system with an empty RPC. Both
// are reported by their medians, without what takes the target away again.
func BenchmarkPublish(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	for store, dir := range map[string]func(testing.TB) string{
		"tmpfs": testenv.TmpfsDir,
		"disk":  func(tb testing.TB) string { return tb.TempDir() },
	} {
		b.Run("store="+store, func(b *testing.B) { benchmarkPublish(b, dir(b)) })
	}
}

func benchmarkPublish(b *testing.B, store string) {
	l := newLives(b, ceiling.Ext4, store, false)
	created, err := l.CreateVolume(b.Context(), &csi.CreateVolumeRequest{
		Name: "published", VolumeCapabilities: []*csi.VolumeCapability{l.capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: lifeBytes},
	})
	require.NoError(b, err)
	id, staging, target := created.GetVolume().GetVolumeId(), filepath.Join(l.targets, "s"), filepath.Join(l.targets, "t")
	require.NoError(b, os.Mkdir(staging, 0o700))
	attached, err := l.ControllerPublishVolume(b.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: l.node, VolumeCapability: l.capability})
	require.NoError(b, err)
	_, err = l.NodeStageVolume(b.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, VolumeCapability: l.capability, PublishContext: attached.GetPublishContext(),
	})
	require.NoError(b, err)

	var ours, bare []time.Duration
	for b.Loop() {
		begin := time.Now()
		_, err := l.NodePublishVolume(b.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: l.capability, PublishContext: attached.GetPublishContext(),
		})
		ours = append(ours, time.Since(begin))
		require.NoError(b, err)
		_, err = l.NodeUnpublishVolume(b.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
		require.NoError(b, err)

		begin = time.Now()
		_, err = l.Probe(b.Context(), &csi.ProbeRequest{})
		require.NoError(b, err)
		require.NoError(b, os.Mkdir(target, 0o700))
		require.NoError(b, mount.Bind(b.Context(), staging, target, mount.Options{}))
		bare = append(bare, time.Since(begin))
		require.NoError(b, mount.Unmount(target))
		require.NoError(b, os.Remove(target))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "us")
	b.ReportMetric(median(bare), "floor-us")

	_, err = l.NodeUnstageVolume(b.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
	require.NoError(b, err)
	_, err = l.ControllerUnpublishVolume(b.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
	require.NoError(b, err)
	_, err = l.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.NoError(b, err)
}

// median is the middle one in microseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e3
}
