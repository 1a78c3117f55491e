package fuzzing_test

import (
	"context"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

// world is an emulator with a volume in use, one that is not, a snapshot and a
// group snapshot.
type world struct {
	conn *grpc.ClientConn
	// dir is where all paths are.
	dir      string
	volumes  [2]string
	snapshot string
	group    string
	// members are the snapshots of the group.
	members        []string
	publishContext map[string]string
}

const nodeName = "node-1"

func newWorld(t *testing.T) *world {
	t.Helper()
	e, err := emulator.New(t.Context(), emulator.Config{
		Backend: memory.New(memory.Options{}), Nodes: []emulator.Node{{Name: nodeName}}, Pools: map[string]int64{emulator.DefaultPool: 1 << 40},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	server, listener := grpc.NewServer(), bufconn.Listen(1<<16)
	require.NoError(t, e.Register("", server))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	w := &world{}
	w.conn, err = grpc.NewClient("passthrough:emulator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.conn.Close() })
	w.dir, err = filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	w.furnish(t)
	return w
}

// furnish makes what the world has.
func (w *world) furnish(t *testing.T) {
	t.Helper()
	array, node := csi.NewControllerClient(w.conn), csi.NewNodeClient(w.conn)
	for i, name := range []string{"used", "idle"} {
		v, err := array.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability()}, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		})
		require.NoError(t, err)
		w.volumes[i] = v.GetVolume().GetVolumeId()
	}
	snap, err := array.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "cut", SourceVolumeId: w.volumes[0]})
	require.NoError(t, err)
	w.snapshot = snap.GetSnapshot().GetSnapshotId()
	group, err := csi.NewGroupControllerClient(w.conn).CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{
		Name: "group", SourceVolumeIds: w.volumes[:],
	})
	require.NoError(t, err)
	w.group = group.GetGroupSnapshot().GetGroupSnapshotId()
	for _, s := range group.GetGroupSnapshot().GetSnapshots() {
		w.members = append(w.members, s.GetSnapshotId())
	}
	attached, err := array.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: w.volumes[0], NodeId: nodeName, VolumeCapability: capability(),
	})
	require.NoError(t, err)
	w.publishContext = attached.GetPublishContext()
	_, err = node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: w.volumes[0], PublishContext: w.publishContext, StagingTargetPath: w.dir + staging, VolumeCapability: capability(),
	})
	require.NoError(t, err)
	_, err = node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: w.volumes[0], StagingTargetPath: w.dir + staging, TargetPath: w.dir + target, VolumeCapability: capability(),
	})
	require.NoError(t, err)
	require.DirExists(t, w.dir+target)
	require.NoError(t, os.Mkdir(w.dir+"/directory", 0o700))
}

const (
	staging = "/staging"
	target  = "/target"
)

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
}

// What dress fills in where a message has nothing, by the bits of its argument.
const (
	ids = 1 << iota
	paths
	capabilities
	contexts
	// idle takes the volume that nobody uses, another the target that is free.
	idle
	another
	everything = ids | paths | capabilities | contexts
)

// dress fills in what a fuzzer does not guess, so that calls do something.
func (w *world) dress(m protoreflect.Message, how byte) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case m.Has(field) && field.Kind() == protoreflect.MessageKind && !field.IsList() && !field.IsMap():
			w.dress(m.Mutable(field).Message(), how)
		case m.Has(field):
		case field.Name() == "volume_capability" && how&capabilities != 0:
			m.Set(field, protoreflect.ValueOfMessage(capability().ProtoReflect()))
		case field.Name() == "volume_capabilities" && how&capabilities != 0:
			m.Mutable(field).List().Append(protoreflect.ValueOfMessage(capability().ProtoReflect()))
		case field.Name() == "publish_context" && how&contexts != 0:
			for k, v := range w.publishContext {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
			}
		case field.Kind() == protoreflect.StringKind && !field.IsMap():
			for _, text := range w.texts(string(field.Name()), how) {
				if field.IsList() {
					m.Mutable(field).List().Append(protoreflect.ValueOfString(text))
				} else {
					m.Set(field, protoreflect.ValueOfString(text))
				}
			}
		}
	}
}

// texts are what a field is filled in with.
func (w *world) texts(field string, how byte) []string {
	isID, isPath := how&ids != 0, how&paths != 0
	switch {
	case isID && (strings.HasPrefix(field, "volume_id") || strings.HasPrefix(field, "source_volume_id")):
		return []string{w.volumes[how&idle/idle]}
	case isID && field == "group_snapshot_id":
		return []string{w.group}
	case isID && field == "snapshot_ids":
		return w.members
	case isID && strings.Contains(field, "snapshot_id"):
		return []string{w.snapshot}
	case isID && field == "node_id":
		return []string{nodeName}
	case isID && field == "name":
		return []string{"named"}
	case isPath && field == "staging_target_path":
		return []string{staging}
	case isPath && strings.HasSuffix(field, "_path") && how&another != 0:
		return []string{"/directory/other"}
	case isPath && strings.HasSuffix(field, "_path"):
		return []string{target}
	}
	return nil
}

// confine puts all paths of a message into the world's directory: the driver makes
// and removes what they name.
func (w *world) confine(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		isPath := strings.HasSuffix(string(field.Name()), "_path")
		switch {
		case isPath && field.Kind() == protoreflect.StringKind && !field.IsList():
			// A rooted path that is clean climbs nowhere.
			m.Set(field, protoreflect.ValueOfString(w.dir+path.Clean("/"+v.String())))
		case isPath:
			panic("a new kind of path: " + field.FullName())
		case field.Kind() != protoreflect.MessageKind || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				w.confine(v.List().Get(i).Message())
			}
		default:
			w.confine(m.Mutable(field).Message())
		}
		return true
	})
}
