package emulator_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// driver is an emulator behind real sockets, with clients.
type driver struct {
	t        *testing.T
	emulator *emulator.Emulator
	stop     func()
	socket   string
	clients
	// dir is where the orchestrator of the test stages and publishes.
	dir string
}

// clients are the services at one endpoint.
type clients struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient
}

func newClients(conn *grpc.ClientConn) clients {
	return clients{
		csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewGroupControllerClient(conn), csi.NewNodeClient(conn),
	}
}

// dial connects to an endpoint; the connection ends with the test.
func dial(t *testing.T, socket string) clients {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return newClients(conn)
}

// start serves a configuration until the test ends or stop is called.
func start(t *testing.T, c emulator.Config) *driver {
	t.Helper()
	d := &driver{t: t, dir: shortDir(t)}
	e, err := emulator.New(t.Context(), c)
	require.NoError(t, err)
	d.emulator = e
	socket := filepath.Join(shortDir(t), "csi.sock")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	l, err := emulator.Listen(ctx, c.Endpoints("unix://"+socket)...)
	require.NoError(t, err)
	go func() { served <- e.ServeOn(ctx, l) }()
	stopped := false
	d.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-served)
		require.NoError(t, e.Close())
		require.NoFileExists(t, socket)
	}
	t.Cleanup(d.stop)
	d.socket, d.clients = socket, dial(t, socket)
	return d
}

// shortDir is a temporary directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // t.TempDir has the test's name in it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func mountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func blockCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func withMode(c *csi.VolumeCapability, m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	c.AccessMode.Mode = m
	return c
}

// volume is a volume on its way through life.
type volume struct {
	d              *driver
	id             string
	node           string
	capability     *csi.VolumeCapability
	publishContext map[string]string
	attaches       bool
	staging        string
	target         string
	created        *csi.Volume
}

// create makes a volume and a place for it in the orchestrator's directory.
func (d *driver) create(name string, capability *csi.VolumeCapability, size int64, edit ...func(*csi.CreateVolumeRequest)) *volume {
	d.t.Helper()
	req := &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability},
		CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	}
	for _, f := range edit {
		f(req)
	}
	resp, err := d.CreateVolume(d.t.Context(), req)
	require.NoError(d.t, err)
	require.GreaterOrEqual(d.t, resp.GetVolume().GetCapacityBytes(), size)
	return d.place(resp.GetVolume(), name, capability)
}

func (d *driver) place(created *csi.Volume, name string, capability *csi.VolumeCapability) *volume {
	d.t.Helper()
	v := &volume{
		d: d, id: created.GetVolumeId(), capability: capability, created: created,
		staging: filepath.Join(d.dir, name, "staging"), target: filepath.Join(d.dir, name, "pod", "volume"),
	}
	require.NoError(d.t, os.MkdirAll(v.staging, 0o700))
	require.NoError(d.t, os.MkdirAll(filepath.Dir(v.target), 0o700))
	info, err := d.NodeGetInfo(d.t.Context(), &csi.NodeGetInfoRequest{})
	require.NoError(d.t, err)
	v.node = info.GetNodeId()
	caps, err := d.ControllerGetCapabilities(d.t.Context(), &csi.ControllerGetCapabilitiesRequest{})
	if status.Code(err) == codes.Unimplemented {
		return v
	}
	require.NoError(d.t, err)
	for _, c := range caps.GetCapabilities() {
		v.attaches = v.attaches || c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
	}
	return v
}

func (v *volume) attach() {
	v.d.t.Helper()
	if !v.attaches {
		return
	}
	resp, err := v.d.ControllerPublishVolume(v.d.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.id, NodeId: v.node, VolumeCapability: v.capability,
	})
	require.NoError(v.d.t, err)
	v.publishContext = resp.GetPublishContext()
}

func (v *volume) stage() {
	v.d.t.Helper()
	_, err := v.d.NodeStageVolume(v.d.t.Context(), v.stageRequest())
	require.NoError(v.d.t, err)
}

func (v *volume) stageRequest() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging, VolumeCapability: v.capability,
	}
}

func (v *volume) publishRequest() *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging, TargetPath: v.target,
		VolumeCapability: v.capability,
	}
}

func (v *volume) publish() {
	v.d.t.Helper()
	_, err := v.d.NodePublishVolume(v.d.t.Context(), v.publishRequest())
	require.NoError(v.d.t, err)
}

func (v *volume) up() { v.d.t.Helper(); v.attach(); v.stage(); v.publish() }

func (v *volume) unpublish() {
	v.d.t.Helper()
	_, err := v.d.NodeUnpublishVolume(v.d.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target})
	require.NoError(v.d.t, err)
	require.NoFileExists(v.d.t, v.target)
	require.NoDirExists(v.d.t, v.target)
}

func (v *volume) unstage() {
	v.d.t.Helper()
	_, err := v.d.NodeUnstageVolume(v.d.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	require.NoError(v.d.t, err)
}

func (v *volume) detach() {
	v.d.t.Helper()
	if !v.attaches {
		return
	}
	_, err := v.d.ControllerUnpublishVolume(v.d.t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.node})
	require.NoError(v.d.t, err)
}

func (v *volume) down() { v.d.t.Helper(); v.unpublish(); v.unstage(); v.detach() }

func (v *volume) delete() {
	v.d.t.Helper()
	_, err := v.d.DeleteVolume(v.d.t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	require.NoError(v.d.t, err)
}

// write puts n random bytes into the published volume and returns their
// checksum; flushed, so that the bytes are the volume's and not the cache's.
func (v *volume) write(n int64) string {
	v.d.t.Helper()
	path := v.target
	if v.capability.GetBlock() == nil {
		path = filepath.Join(v.target, "data")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(v.d.t, err)
	defer func() { require.NoError(v.d.t, f.Close()) }()
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), rand.Reader, n)
	require.NoError(v.d.t, err)
	require.NoError(v.d.t, f.Sync())
	return hex.EncodeToString(sum.Sum(nil))
}

// read returns the checksum of the first n bytes.
func (v *volume) read(n int64) string {
	v.d.t.Helper()
	path := v.target
	if v.capability.GetBlock() == nil {
		path = filepath.Join(v.target, "data")
	}
	f, err := os.Open(path)
	require.NoError(v.d.t, err)
	defer func() { require.NoError(v.d.t, f.Close()) }()
	sum := sha256.New()
	_, err = io.CopyN(sum, f, n)
	require.NoError(v.d.t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

func (d *driver) snapshot(name, volumeID string) *csi.Snapshot {
	d.t.Helper()
	resp, err := d.CreateSnapshot(d.t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volumeID})
	require.NoError(d.t, err)
	require.True(d.t, resp.GetSnapshot().GetReadyToUse())
	return resp.GetSnapshot()
}

func fromSnapshot(id string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
		}}
	}
}

func fromVolume(id string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
		}}
	}
}

// wantCode asserts a code, an empty status.details and a message.
func wantCode(t *testing.T, want codes.Code, err error) {
	t.Helper()
	s := status.Convert(err)
	require.Equal(t, want, s.Code(), "message: %s", s.Message())
	require.Empty(t, s.Proto().GetDetails())
	if want != codes.OK {
		require.NotEmpty(t, s.Message())
	}
}

// backendCase is a backend with what it can have.
type backendCase struct {
	name string
	open func(t *testing.T, dir string) backends.Backend
	// data says that bytes are kept, block that raw block volumes exist.
	data bool
	// capabilities are the kinds of volume to walk through a life.
	capabilities []*csi.VolumeCapability
	// size is the smallest size at which all of them can be made.
	size int64
}

const (
	// patience is how long a test waits for another process, on a busy
	// machine; tick is how often it looks.
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
)

func codeOf(err error) codes.Code { return status.Code(err) }

func memoryCase() backendCase {
	return backendCase{
		name: "memory", size: 16 * mib,
		capabilities: []*csi.VolumeCapability{mountCapability(""), blockCapability()},
		open:         func(*testing.T, string) backends.Backend { return memory.New(memory.Options{}) },
	}
}
