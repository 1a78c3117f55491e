package fuzzing_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// known are the codes that the specification has for calls that were understood
// ("Error Scheme" and the tables of the RPCs). A driver whose parts are in one
// process, and whose callers wait, has no use for the others, and INTERNAL is a
// fault of ours.
var known = []codes.Code{
	codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented,
}

// FuzzDriver makes the calls of a program against an emulator that has volumes
// and a snapshot: whatever they say, each gets a code that the specification
// knows, and nothing is touched but the paths that they name.
func FuzzDriver(f *testing.F) {
	for _, program := range seeds(f) {
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		calls := parse(program)
		if len(calls) == 0 {
			return
		}
		w := newWorld(t)
		for _, c := range calls {
			m := c.request.ProtoReflect()
			w.dress(m, c.dress)
			w.confine(m)
			s := status.Convert(w.call(t, c))
			require.Contains(t, known, s.Code(), "%s {%v}: %s", c.method.FullName(), c.request, s.Message())
			require.Empty(t, s.Proto().GetDetails(), "%s {%v}", c.method.FullName(), c.request)
			if s.Code() != codes.OK {
				require.NotEmpty(t, s.Message(), "%s {%v}", c.method.FullName(), c.request)
			}
		}
	})
}

// methods are all methods of the specification, in its order.
func methods() (all []protoreflect.MethodDescriptor) {
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			all = append(all, services.Get(i).Methods().Get(j))
		}
	}
	return all
}

// programCall is one call of a program. In the program it is a byte for the
// method, one for dress, one for the length of the message, and the message.
type programCall struct {
	method  protoreflect.MethodDescriptor
	request proto.Message
	dress   byte
}

const patience = time.Minute

// most is how many calls a program makes.
const most = 8

// parse reads a program. What is no message of its method is left out.
func parse(program []byte) (calls []programCall) {
	all := methods()
	for len(program) > 2 && len(calls) < most {
		method := all[int(program[0])%len(all)]
		dress, length := program[1], min(int(program[2]), len(program)-3)
		request := newMessage(method.Input())
		if proto.Unmarshal(program[3:3+length], request) == nil {
			calls = append(calls, programCall{method, request, dress})
		}
		program = program[3+length:]
	}
	return calls
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

// call makes a call and reads its answer to the end.
func (w *world) call(t *testing.T, c programCall) error {
	// No call waits for anything: one that does not end has found a deadlock.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	full := "/" + string(c.method.Parent().FullName()) + "/" + string(c.method.Name())
	reply := newMessage(c.method.Output())
	if !c.method.IsStreamingServer() {
		return w.conn.Invoke(ctx, full, c.request, reply)
	}
	stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	require.NoError(t, err)
	err = stream.SendMsg(c.request)
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // the end of a stream says why when it is read
		return err
	}
	for {
		err := stream.RecvMsg(reply)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// seeds are programs in which every method succeeds that the driver has, and one
// of each with an empty message.
func seeds(f *testing.F) (programs [][]byte) {
	all := methods()
	find := func(name protoreflect.Name) byte {
		return byte(slices.IndexFunc(all, func(m protoreflect.MethodDescriptor) bool { return m.Name() == name }))
	}
	for i := range all {
		programs = append(programs, []byte{byte(i), 0, 0}, []byte{byte(i), everything, 0})
	}
	add := func(steps ...any) {
		var program []byte
		for i := 0; i < len(steps); i += 2 {
			data, err := proto.Marshal(steps[i+1].(proto.Message))
			require.NoError(f, err)
			program = append(program, find(protoreflect.Name(steps[i].(string))), everything, byte(len(data)))
			program = append(program, data...)
		}
		programs = append(programs, program)
	}
	size := &csi.CapacityRange{RequiredBytes: 32 << 20}
	add("CreateVolume", &csi.CreateVolumeRequest{Name: "new", CapacityRange: size},
		"ControllerExpandVolume", &csi.ControllerExpandVolumeRequest{CapacityRange: size},
		"NodeExpandVolume", &csi.NodeExpandVolumeRequest{CapacityRange: size},
		"NodeGetVolumeStats", &csi.NodeGetVolumeStatsRequest{})
	add("CreateVolume", &csi.CreateVolumeRequest{Name: "restored", VolumeContentSource: &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{}},
	}})
	add("CreateVolume", &csi.CreateVolumeRequest{Name: "clone", VolumeContentSource: &csi.VolumeContentSource{
		Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{}},
	}})
	add("CreateVolume", &csi.CreateVolumeRequest{Name: "thick", Parameters: map[string]string{"provisioning": "thick", "pool": "default"}})
	add("NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{}, "NodeUnstageVolume", &csi.NodeUnstageVolumeRequest{},
		"ControllerUnpublishVolume", &csi.ControllerUnpublishVolumeRequest{}, "DeleteVolume", &csi.DeleteVolumeRequest{},
		"DeleteSnapshot", &csi.DeleteSnapshotRequest{})
	add("NodePublishVolume", &csi.NodePublishVolumeRequest{
		VolumeId: "inline", VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "1Mi"},
	})
	add("ListVolumes", &csi.ListVolumesRequest{MaxEntries: 1}, "ListVolumes", &csi.ListVolumesRequest{MaxEntries: 1, StartingToken: "after-1"},
		"ListSnapshots", &csi.ListSnapshotsRequest{MaxEntries: 1, StartingToken: "after-x"})
	add("CreateVolumeGroupSnapshot", &csi.CreateVolumeGroupSnapshotRequest{Name: "both"},
		"GetVolumeGroupSnapshot", &csi.GetVolumeGroupSnapshotRequest{},
		"DeleteVolumeGroupSnapshot", &csi.DeleteVolumeGroupSnapshotRequest{}, "GetVolumeGroupSnapshot", &csi.GetVolumeGroupSnapshotRequest{})
	add("ControllerModifyVolume", &csi.ControllerModifyVolumeRequest{MutableParameters: map[string]string{"health": "DEGRADED:Reason:words"}},
		"ControllerGetVolumeHealth", &csi.ControllerGetVolumeHealthRequest{}, "NodeGetVolumeHealth", &csi.NodeGetVolumeHealthRequest{},
		"ControllerListVolumeHealth", &csi.ControllerListVolumeHealthRequest{MaxEntries: 1}, "ControllerGetVolume", &csi.ControllerGetVolumeRequest{})
	add("GetMetadataAllocated", &csi.GetMetadataAllocatedRequest{StartingOffset: 4096, MaxResults: 2},
		"GetMetadataDelta", &csi.GetMetadataDeltaRequest{}, "GetSnapshot", &csi.GetSnapshotRequest{})
	add("ValidateVolumeCapabilities", &csi.ValidateVolumeCapabilitiesRequest{}, "GetCapacity", &csi.GetCapacityRequest{})
	return programs
}
