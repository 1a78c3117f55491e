//go:build linux

package emulator_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// BenchmarkGroupFreeze cuts a group snapshot of two mounted volumes with 128 MiB
// of data each while a writer writes to both, on each kind of store, and reports
// the longest that a write had to wait, for each GiB of data.
func BenchmarkGroupFreeze(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	const members, data = 2, 128 * mib
	for _, store := range []struct {
		name string
		dir  func(testing.TB) string
	}{
		{"tmpfs", testenv.TmpfsDir},
		{"disk", func(tb testing.TB) string { return tb.TempDir() }},
		{"xfs-reflink", testenv.XFSDir},
	} {
		b.Run("store="+store.name, func(b *testing.B) {
			dir := store.dir(b)
			backend, err := loop.New(loop.Options{Dir: dir})
			require.NoError(b, err)
			e, err := emulator.New(b.Context(), emulator.Config{Backend: backend, StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, e.Close()) })
			server := grpc.NewServer()
			require.NoError(b, e.Register("", server))
			c := newClients(serveBench(b, server))

			targets := b.TempDir()
			var ids []string
			var files []*os.File
			for i := range members {
				id, target := upBench(b, c, targets, fmt.Sprintf("v%d", i))
				f, err := os.Create(filepath.Join(target, "data"))
				require.NoError(b, err)
				_, err = io.CopyN(f, rand.Reader, data)
				require.NoError(b, err)
				require.NoError(b, f.Sync())
				ids, files = append(ids, id), append(files, f)
			}
			var waited time.Duration
			n := 0
			for b.Loop() {
				waited += longestWait(b, files, func() {
					g, err := c.CreateVolumeGroupSnapshot(b.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: fmt.Sprint("g", n), SourceVolumeIds: ids})
					require.NoError(b, err)
					_, err = c.DeleteVolumeGroupSnapshot(b.Context(), &csi.DeleteVolumeGroupSnapshotRequest{
						GroupSnapshotId: g.GetGroupSnapshot().GetGroupSnapshotId(), SnapshotIds: snapshotIDs(g.GetGroupSnapshot()),
					})
					require.NoError(b, err)
				})
				n++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(waited.Seconds()*1e3/float64(n)*float64(gib)/(members*data), "frozen-ms/GiB")
			for i, f := range files {
				require.NoError(b, f.Close())
				downBench(b, c, targets, ids[i], fmt.Sprintf("v%d", i))
			}
		})
	}
}

// longestWait is how long the slowest of many small flushed writes took while do
// ran.
func longestWait(b *testing.B, files []*os.File, do func()) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var longest atomic.Int64
	var writers sync.WaitGroup
	for _, f := range files {
		writers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := f.WriteAt([]byte("x"), 0)
				if err == nil {
					err = f.Sync()
				}
				if err != nil {
					b.Error(err)
					return
				}
				if took := int64(time.Since(began)); took > longest.Load() {
					longest.Store(took)
				}
			}
		})
	}
	do()
	cancel()
	writers.Wait()
	return time.Duration(longest.Load())
}

// upBench creates a volume and publishes it.
func upBench(b *testing.B, c clients, targets, name string) (id, target string) {
	b.Helper()
	capability := mountCapability("ext4")
	created, err := c.CreateVolume(b.Context(), &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 512 * mib},
	})
	require.NoError(b, err)
	id = created.GetVolume().GetVolumeId()
	staging, target := filepath.Join(targets, name+"-s"), filepath.Join(targets, name+"-t")
	require.NoError(b, os.Mkdir(staging, 0o700))
	attached, err := c.ControllerPublishVolume(b.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "node-1", VolumeCapability: capability})
	require.NoError(b, err)
	_, err = c.NodeStageVolume(b.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, VolumeCapability: capability, PublishContext: attached.GetPublishContext(),
	})
	require.NoError(b, err)
	_, err = c.NodePublishVolume(b.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability, PublishContext: attached.GetPublishContext(),
	})
	require.NoError(b, err)
	return id, target
}

// downBench undoes upBench.
func downBench(b *testing.B, c clients, targets, id, name string) {
	b.Helper()
	_, err := c.NodeUnpublishVolume(b.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: filepath.Join(targets, name+"-t")})
	require.NoError(b, err)
	_, err = c.NodeUnstageVolume(b.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: filepath.Join(targets, name+"-s")})
	require.NoError(b, err)
	_, err = c.ControllerUnpublishVolume(b.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
	require.NoError(b, err)
	_, err = c.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.NoError(b, err)
}
