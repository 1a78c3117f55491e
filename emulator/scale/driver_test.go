package scale_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

const (
	mib      = 1 << 20
	nodeName = "node-1"
)

// driver is an emulator with clients.
type driver struct {
	csi.ControllerClient
	csi.NodeClient
	// dir is where volumes are staged and published.
	dir string
	// stop ends the emulator before the test does.
	stop func()
}

func start(tb testing.TB, backend backends.Backend, state string) *driver {
	tb.Helper()
	e, err := emulator.New(tb.Context(), emulator.Config{
		Backend: backend, StateDir: state, Nodes: []emulator.Node{{Name: nodeName}}, Pools: map[string]int64{emulator.DefaultPool: 1 << 60},
	})
	require.NoError(tb, err)
	server, listener := grpc.NewServer(), bufconn.Listen(1<<16)
	require.NoError(tb, e.Register("", server))
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:emulator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(tb, err)
	d := &driver{ControllerClient: csi.NewControllerClient(conn), NodeClient: csi.NewNodeClient(conn)}
	d.dir, err = filepath.EvalSymlinks(tb.TempDir())
	require.NoError(tb, err)
	d.stop = sync.OnceFunc(func() {
		_ = conn.Close()
		server.Stop()
		require.NoError(tb, e.Close())
	})
	tb.Cleanup(d.stop)
	return d
}

// many runs f for 0 to n-1, several at once.
func many(tb testing.TB, n int, f func(i int) error) {
	tb.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

func capability(fsType string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if fsType == block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}
	}
	return c
}

// block stands in place of a file system for a volume without one.
const block = "block"

// create makes an idle volume.
func (d *driver) create(ctx context.Context, name, fsType string) (string, error) {
	v, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability(fsType)}, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib},
	})
	return v.GetVolume().GetVolumeId(), err
}

// fill makes idle volumes.
func (d *driver) fill(tb testing.TB, from, to int, fsType string) {
	tb.Helper()
	many(tb, to-from, func(i int) error {
		_, err := d.create(tb.Context(), fmt.Sprintf("idle-%d", from+i), fsType)
		return err
	})
}

// call makes one call of a life.
type call func(method string, do func() (proto.Message, error)) proto.Message

// live walks a volume through its life, with a snapshot on the way, each call
// through by.
func (d *driver) live(ctx context.Context, name, fsType string, by call) {
	c, staging, target := capability(fsType), filepath.Join(d.dir, name+"-s"), filepath.Join(d.dir, name+"-t")
	_ = os.Mkdir(staging, 0o700) // the caller's work
	defer os.Remove(staging)
	id := by("CreateVolume", func() (proto.Message, error) {
		return d.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{c}, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib},
		})
	}).(*csi.CreateVolumeResponse).GetVolume().GetVolumeId()
	publishContext := by("ControllerPublishVolume", func() (proto.Message, error) {
		return d.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeName, VolumeCapability: c})
	}).(*csi.ControllerPublishVolumeResponse).GetPublishContext()
	by("NodeStageVolume", func() (proto.Message, error) {
		return d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, VolumeCapability: c, PublishContext: publishContext,
		})
	})
	by("NodePublishVolume", func() (proto.Message, error) {
		return d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: c, PublishContext: publishContext,
		})
	})
	by("NodeGetVolumeStats", func() (proto.Message, error) {
		return d.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: target})
	})
	by("NodeExpandVolume", func() (proto.Message, error) {
		return d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: target})
	})
	by("ValidateVolumeCapabilities", func() (proto.Message, error) {
		return d.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{c}})
	})
	by("GetCapacity", func() (proto.Message, error) { return d.GetCapacity(ctx, &csi.GetCapacityRequest{}) })
	by("NodeUnpublishVolume", func() (proto.Message, error) {
		return d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	})
	by("NodeUnstageVolume", func() (proto.Message, error) {
		return d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
	})
	by("ControllerUnpublishVolume", func() (proto.Message, error) {
		return d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: nodeName})
	})
	by("ControllerExpandVolume", func() (proto.Message, error) {
		return d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 32 * mib}})
	})
	snapshot := by("CreateSnapshot", func() (proto.Message, error) {
		return d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: id, Name: name})
	}).(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()
	by("ListSnapshots", func() (proto.Message, error) {
		return d.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SnapshotId: snapshot})
	})
	by("DeleteSnapshot", func() (proto.Message, error) {
		return d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot})
	})
	by("DeleteVolume", func() (proto.Message, error) { return d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}) })
}

// methods are those of live, in their order.
var methods = []string{
	"CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeGetVolumeStats", "NodeExpandVolume",
	"ValidateVolumeCapabilities", "GetCapacity", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume",
	"ControllerExpandVolume", "CreateSnapshot", "ListSnapshots", "DeleteSnapshot", "DeleteVolume",
}
