package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/access"
)

const (
	writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	reader = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	shared = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

	mib = 1 << 20
	// patience is how long a call may take that nobody gives up.
	patience = time.Minute
	// never begins the ids of what was never made.
	never = "never-"
	// hurry is how long a caller waits at most that gives up.
	hurry = 2 * time.Millisecond
)

// world is one run: what clients know of the objects, and what they recorded.
type world struct {
	*rig
	setup    setup
	clock    atomic.Int64
	families []*family
}

// family is a few objects that depend on each other, but on no others.
type family struct {
	volumes, snapshots []string

	mu      sync.Mutex
	history []*operation
	// ids are all ids of volumes and snapshots that are known, the latest last,
	// by names; names is the reverse.
	ids   map[string][]string
	names map[string]string
	// contexts are the latest publish contexts by volume id and node.
	contexts map[[2]string]map[string]string
}

func newFamily(i int) *family {
	return &family{
		volumes:   []string{fmt.Sprintf("volume-%d", i), fmt.Sprintf("restored-%d", i)},
		snapshots: []string{fmt.Sprintf("snapshot-%d-a", i), fmt.Sprintf("snapshot-%d-b", i)},
		ids:       map[string][]string{}, names: map[string]string{}, contexts: map[[2]string]map[string]string{},
	}
}

// learn keeps what an answer tells of ids and contexts.
func (f *family) learn(o *operation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, o)
	name, id := "", ""
	switch r := o.request.(type) {
	case *csi.CreateVolumeRequest:
		name, id = r.GetName(), as[*csi.CreateVolumeResponse](o).GetVolume().GetVolumeId()
	case *csi.CreateSnapshotRequest:
		name, id = r.GetName(), as[*csi.CreateSnapshotResponse](o).GetSnapshot().GetSnapshotId()
	case *csi.ControllerPublishVolumeRequest:
		if c := as[*csi.ControllerPublishVolumeResponse](o).GetPublishContext(); c != nil {
			f.contexts[[2]string{r.GetVolumeId(), r.GetNodeId()}] = c
		}
	}
	if id != "" && f.names[id] == "" {
		f.names[id] = name
		f.ids[name] = append(f.ids[name], id)
	}
}

// client calls at random.
type client struct {
	*world
	number int
	random *rand.Rand
}

func pick[T any](c *client, from []T) T { return from[c.random.IntN(len(from))] }

// id is the latest id of one of the names, or now and then an earlier one, or one
// that never was.
func (c *client) id(f *family, names []string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := f.ids[pick(c, names)]
	switch {
	case len(ids) == 0:
		return never + names[0]
	case c.random.IntN(6) == 0:
		return pick(c, ids)
	}
	return ids[len(ids)-1]
}

func (c *client) capability() *csi.VolumeCapability { return capability(pick(c, c.setup.modes)) }

func capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func size(n int64) *csi.CapacityRange { return &csi.CapacityRange{RequiredBytes: n} }

// run makes one call after the other.
func (c *client) run(ctx context.Context, calls int) {
	for range calls {
		f := pick(c, c.families)
		node := pick(c, nodes)
		request := c.request(f, node)
		hurried := c.random.IntN(12) == 0
		ctx, cancel := context.WithTimeout(ctx, patience)
		if hurried {
			ctx, cancel = c.hurry(ctx, cancel)
		}
		c.call(ctx, f, node, request, hurried)
		cancel()
	}
}

// hurry makes a context that ends soon: by a deadline, which the server learns
// of, or by a cancellation.
func (c *client) hurry(ctx context.Context, cancel func()) (context.Context, func()) {
	after := time.Duration(c.random.Int64N(int64(hurry)))
	if c.random.IntN(2) == 0 {
		short, cancelShort := context.WithTimeout(ctx, after)
		return short, func() { cancelShort(); cancel() }
	}
	timer := time.AfterFunc(after, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// request makes a request for objects of f. Requests for a node go to node.
func (c *client) request(f *family, node string) proto.Message {
	id := c.id(f, f.volumes[:1+c.random.IntN(5)/4])
	staging, target := pick(c, c.paths(node, id, "s")), pick(c, c.paths(node, id, "t"))
	if c.random.IntN(4) > 0 {
		staging = c.paths(node, id, "s")[0]
	}
	switch n := c.random.IntN(100); {
	case n < 12:
		return c.createRequest(f)
	case n < 15:
		return &csi.DeleteVolumeRequest{VolumeId: id}
	case n < 28:
		r := &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: c.capability()}
		r.Readonly = access.ReaderOnly(r.GetVolumeCapability().GetAccessMode().GetMode()) && c.random.IntN(2) == 0
		return r
	case n < 31:
		return &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: pick(c, []string{node, node, ""})}
	case n < 46:
		f.mu.Lock()
		defer f.mu.Unlock()
		return &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, VolumeCapability: c.capability(), PublishContext: f.contexts[[2]string{id, node}],
		}
	case n < 50:
		return &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging}
	case n < 65:
		return &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: c.capability(), Readonly: c.random.IntN(6) == 0,
		}
	case n < 71:
		return &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target}
	case n < 77:
		return &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: pick(c, []string{staging, target})}
	case n < 80:
		return &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: pick(c, []string{staging, target})}
	case n < 83:
		return &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: size(pick(c, []int64{32, 48, 64}) * mib)}
	case n < 85:
		return &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{capability(writer)}}
	case n < 88:
		return &csi.ListVolumesRequest{}
	case n < 93:
		return &csi.CreateSnapshotRequest{Name: pick(c, f.snapshots), SourceVolumeId: id}
	case n < 96:
		return &csi.DeleteSnapshotRequest{SnapshotId: c.id(f, f.snapshots)}
	}
	return &csi.ListSnapshotsRequest{}
}

// createRequest asks for an empty volume, or for one that is restored.
func (c *client) createRequest(f *family) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name: f.volumes[0], CapacityRange: size(pick(c, []int64{32, 32, 32, 48}) * mib),
		VolumeCapabilities: []*csi.VolumeCapability{capability(writer)},
	}
	if c.random.IntN(3) == 0 {
		r.Name, r.CapacityRange = f.volumes[1], size(pick(c, []int64{32, 64, 64})*mib)
		r.VolumeContentSource = sourceSnapshot(c.id(f, f.snapshots))
	}
	return r
}

func sourceSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

// call makes a call and records it, in every family that it concerns.
func (c *client) call(ctx context.Context, f *family, node string, request proto.Message, hurried bool) *operation {
	o := &operation{client: c.number, request: request, call: c.clock.Add(1)}
	if r, ok := request.(*csi.NodeStageVolumeRequest); ok && c.devices {
		_ = os.Mkdir(r.GetStagingTargetPath(), 0o700) // the caller's work; it may be there
	}
	reply, err := c.send(ctx, node, o)
	o.end = c.clock.Add(1)
	o.code, o.says = status.Code(err), status.Convert(err).Message()
	if err == nil {
		o.reply = reply
	}
	o.lost = hurried && (o.code == codes.Canceled || o.code == codes.DeadlineExceeded)
	o.harmless = !o.lost && (o.code != codes.OK || changesNothing(request))
	concerned := []*family{f}
	switch request.(type) {
	case *csi.ListVolumesRequest, *csi.ListSnapshotsRequest:
		concerned = c.families
	}
	for _, f := range concerned {
		f.learn(o)
	}
	return o
}

// changesNothing says whether a call never changes anything: it only reads, or is
// for a volume that never was.
func changesNothing(request proto.Message) bool {
	if r, ok := request.(interface{ GetVolumeId() string }); ok && strings.HasPrefix(r.GetVolumeId(), never) {
		return true
	}
	if r, ok := request.(interface{ GetSnapshotId() string }); ok && strings.HasPrefix(r.GetSnapshotId(), never) {
		return true
	}
	switch request.(type) {
	case *csi.ListVolumesRequest, *csi.ListSnapshotsRequest, *csi.ValidateVolumeCapabilitiesRequest,
		*csi.NodeGetVolumeStatsRequest, *csi.NodeExpandVolumeRequest:
		return true
	}
	return false
}

// send makes the call of a request.
func (c *client) send(ctx context.Context, name string, o *operation) (proto.Message, error) {
	array, node := c.array(), c.node(name)
	switch r := o.request.(type) {
	case *csi.CreateVolumeRequest:
		return array.CreateVolume(ctx, r)
	case *csi.DeleteVolumeRequest:
		return array.DeleteVolume(ctx, r)
	case *csi.ControllerPublishVolumeRequest:
		return array.ControllerPublishVolume(ctx, r)
	case *csi.ControllerUnpublishVolumeRequest:
		return array.ControllerUnpublishVolume(ctx, r)
	case *csi.ControllerExpandVolumeRequest:
		return array.ControllerExpandVolume(ctx, r)
	case *csi.ValidateVolumeCapabilitiesRequest:
		return array.ValidateVolumeCapabilities(ctx, r)
	case *csi.ListVolumesRequest:
		return array.ListVolumes(ctx, r)
	case *csi.CreateSnapshotRequest:
		return array.CreateSnapshot(ctx, r)
	case *csi.DeleteSnapshotRequest:
		return array.DeleteSnapshot(ctx, r)
	case *csi.ListSnapshotsRequest:
		return array.ListSnapshots(ctx, r)
	}
	o.node = name
	switch r := o.request.(type) {
	case *csi.NodeStageVolumeRequest:
		return node.NodeStageVolume(ctx, r)
	case *csi.NodeUnstageVolumeRequest:
		return node.NodeUnstageVolume(ctx, r)
	case *csi.NodePublishVolumeRequest:
		return node.NodePublishVolume(ctx, r)
	case *csi.NodeUnpublishVolumeRequest:
		return node.NodeUnpublishVolume(ctx, r)
	case *csi.NodeGetVolumeStatsRequest:
		return node.NodeGetVolumeStats(ctx, r)
	case *csi.NodeExpandVolumeRequest:
		return node.NodeExpandVolume(ctx, r)
	}
	panic(fmt.Sprintf("no client sends a %T", o.request))
}
