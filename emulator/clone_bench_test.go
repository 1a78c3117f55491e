//go:build linux

package emulator_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// BenchmarkStatsDuringClone calls NodeGetVolumeStats of one volume while
// another of 4 GiB, all of it data, is cloned without reflink, and reports the
// 99th percentile; beside it the same calls while nothing else goes on.
func BenchmarkStatsDuringClone(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4)
	const size = 4 * gib
	store := b.TempDir()
	l := newBenchDriver(b, store)
	busy, err := l.CreateVolume(b.Context(), &csi.CreateVolumeRequest{
		Name: "busy", VolumeCapabilities: []*csi.VolumeCapability{blockCapability()}, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	})
	require.NoError(b, err)
	fill(b, filepath.Join(store, "volumes", busy.GetVolume().GetVolumeId(), "image"), size)
	id, target := publishOne(b, l)
	stats := func() time.Duration {
		begin := time.Now()
		_, err := l.NodeGetVolumeStats(b.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: target})
		require.NoError(b, err)
		return time.Since(begin)
	}
	b.Run("during=nothing", func(b *testing.B) {
		var all []time.Duration
		for b.Loop() {
			all = append(all, stats())
		}
		reportP99(b, all)
	})
	b.Run("during=clone", func(b *testing.B) {
		var all []time.Duration
		for b.Loop() {
			cloned := make(chan error, 1)
			var clone *csi.CreateVolumeResponse
			go func() {
				var err error
				clone, err = l.CreateVolume(b.Context(), &csi.CreateVolumeRequest{
					Name: "clone", VolumeCapabilities: []*csi.VolumeCapability{blockCapability()},
					VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
						Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: busy.GetVolume().GetVolumeId()},
					}},
				})
				cloned <- err
			}()
			var done bool
			for !done {
				select {
				case err := <-cloned:
					require.NoError(b, err)
					done = true
				default:
					all = append(all, stats())
				}
			}
			_, err := l.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: clone.GetVolume().GetVolumeId()})
			require.NoError(b, err)
		}
		reportP99(b, all)
	})
}

func reportP99(b *testing.B, all []time.Duration) {
	b.Helper()
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(all)), "calls")
}

// newBenchDriver serves a loop driver at a unix socket.
func newBenchDriver(b *testing.B, store string) clients {
	b.Helper()
	backend, err := loop.New(loop.Options{Dir: store})
	require.NoError(b, err)
	e, err := emulator.New(b.Context(), emulator.Config{Backend: backend, StateDir: store, Nodes: []emulator.Node{{Name: "node-1"}}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	server := grpc.NewServer()
	require.NoError(b, e.Register("", server))
	conn := serveBench(b, server)
	return newClients(conn)
}

// fill writes data over a whole image, so that a copy has to copy all of it.
func fill(b *testing.B, path string, size int64) {
	b.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(b, err)
	chunk := make([]byte, 8*mib)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for offset := int64(0); offset < size; offset += int64(len(chunk)) {
		_, err := f.WriteAt(chunk, offset)
		require.NoError(b, err)
	}
	require.NoError(b, f.Close())
}

// publishOne makes a small ext4 volume and publishes it until the benchmark
// ends.
func publishOne(b *testing.B, l clients) (id, target string) {
	b.Helper()
	ctx := b.Context()
	created, err := l.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "quiet", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("ext4")}, CapacityRange: &csi.CapacityRange{RequiredBytes: lifeBytes},
	})
	require.NoError(b, err)
	id = created.GetVolume().GetVolumeId()
	dir := testenv.TmpfsDir(b)
	staging, target := filepath.Join(dir, "s"), filepath.Join(dir, "t")
	require.NoError(b, os.Mkdir(staging, 0o700))
	attached, err := l.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "node-1", VolumeCapability: mountCapability("ext4")})
	require.NoError(b, err)
	_, err = l.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, VolumeCapability: mountCapability("ext4"), PublishContext: attached.GetPublishContext(),
	})
	require.NoError(b, err)
	_, err = l.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: mountCapability("ext4"), PublishContext: attached.GetPublishContext(),
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx := context.WithoutCancel(b.Context())
		_, err := l.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
		require.NoError(b, err)
		_, err = l.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
		require.NoError(b, err)
		_, err = l.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
		require.NoError(b, err)
	})
	return id, target
}
