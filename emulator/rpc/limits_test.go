package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// change returns the complete request of its type with a change.
func change[M proto.Message](how func(M)) proto.Message {
	for _, request := range complete() {
		if m, ok := request.(M); ok {
			how(m)
			return m
		}
	}
	panic("no such request")
}

func createVolume(how func(*csi.CreateVolumeRequest)) proto.Message { return change(how) }

func publish(how func(*csi.NodePublishVolumeRequest)) proto.Message { return change(how) }

func withTopology(key, value string) proto.Message {
	return createVolume(func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements = &csi.TopologyRequirement{
			Requisite: []*csi.Topology{{Segments: map[string]string{key: value}}},
		}
	})
}

func withRange(required, limit int64) proto.Message {
	return createVolume(func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	})
}

const good = codes.Unimplemented // the chain let it pass

var limitCases = map[string]struct {
	request proto.Message
	code    codes.Code
	says    string
}{
	"name of 128 bytes": {createVolume(func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("é", 64) }), good, ""},
	"name of 129 bytes": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 129) }),
		codes.InvalidArgument, "CreateVolume: name has 129 bytes, more than 128",
	},
	"name with allowed white space": {createVolume(func(r *csi.CreateVolumeRequest) { r.Name = "a b\tc\nd\r" }), good, ""},
	"name with NUL": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Name = "a\x00" }),
		codes.InvalidArgument, "name contains a banned control character at byte 1",
	},
	"name with U+000B": {createVolume(func(r *csi.CreateVolumeRequest) { r.Name = "\v" }), codes.InvalidArgument, "name"},
	"name with U+0085": {createVolume(func(r *csi.CreateVolumeRequest) { r.Name = "\u0085" }), codes.InvalidArgument, "name"},
	"name with U+00A0": {createVolume(func(r *csi.CreateVolumeRequest) { r.Name = "\u00a0" }), good, ""},
	"snapshot name with U+007F": {
		change(func(r *csi.CreateSnapshotRequest) { r.Name = "\x7f" }), codes.InvalidArgument, "CreateSnapshot: name",
	},
	"group name of 129 bytes": {
		change(func(r *csi.CreateVolumeGroupSnapshotRequest) { r.Name = strings.Repeat("n", 129) }), codes.InvalidArgument, "name",
	},

	"volume id with a line feed": {
		change(func(r *csi.DeleteVolumeRequest) { r.VolumeId = "vol\n" }),
		codes.InvalidArgument, "volume_id contains a control character at byte 3",
	},
	"volume id of 129 bytes": {
		change(func(r *csi.DeleteVolumeRequest) { r.VolumeId = strings.Repeat("v", 129) }), codes.InvalidArgument, "volume_id",
	},
	"second of several ids of 129 bytes": {
		change(func(r *csi.CreateVolumeGroupSnapshotRequest) { r.SourceVolumeIds[1] = strings.Repeat("v", 129) }),
		codes.InvalidArgument, "source_volume_ids[1] has 129 bytes",
	},
	"node id of 256 bytes": {
		change(func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = strings.Repeat("n", 256) }), good, "",
	},
	"node id of 257 bytes": {
		change(func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = strings.Repeat("n", 257) }),
		codes.InvalidArgument, "node_id has 257 bytes, more than 256",
	},
	"file system type of 129 bytes": {
		publish(func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.GetMount().FsType = strings.Repeat("x", 129)
		}), codes.InvalidArgument, "volume_capability.mount.fs_type has 129 bytes",
	},

	"path that is long":     {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = strings.Repeat("/directory", 100) }), good, ""},
	"path that is relative": {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "some/path" }), codes.InvalidArgument, "target_path must be an absolute path"},
	"path that climbs":      {publish(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "/a/../b" }), codes.InvalidArgument, "staging_target_path"},
	"path with a NUL":       {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/a\x00" }), codes.InvalidArgument, "target_path"},
	"volume path that csi-test makes up": {
		change(func(r *csi.NodeGetVolumeStatsRequest) { r.VolumePath = "some/path" }), good, "",
	},

	"topology":                       {withTopology("com.company.example/zone", "Z-1_a.b"), good, ""},
	"topology key without prefix":    {withTopology("Zone", "z"), good, ""},
	"topology key with empty prefix": {withTopology("/zone", "z"), codes.InvalidArgument, "the prefix of key"},
	"topology key with empty name":   {withTopology("a.b/", "z"), codes.InvalidArgument, "the name of key"},
	"topology prefix in upper case":  {withTopology("A.b/zone", "z"), codes.InvalidArgument, "the prefix of key"},
	"topology prefix with two dots":  {withTopology("a..b/zone", "z"), codes.InvalidArgument, "the prefix of key"},
	"topology key with two slashes":  {withTopology("a/b/c", "z"), codes.InvalidArgument, "the name of key"},
	"topology name of 64 bytes":      {withTopology(strings.Repeat("k", 64), "z"), codes.InvalidArgument, "the name of key"},
	"topology key past every limit":  {withTopology(strings.Repeat("k", 500), "z"), codes.InvalidArgument, "a key has 500 bytes"},
	"topology value of 64 bytes":     {withTopology("zone", strings.Repeat("v", 64)), codes.InvalidArgument, `the value of key "zone" has 64 bytes`},
	"topology value that is empty":   {withTopology("zone", ""), codes.InvalidArgument, "the value"},
	"topology value that ends in -":  {withTopology("zone", "a-"), codes.InvalidArgument, "the value"},
	"topology keys that differ by case": {createVolume(func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements = &csi.TopologyRequirement{
			Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a", "Zone": "b"}}},
		}
	}), codes.InvalidArgument, `accessibility_requirements.requisite[0].segments has keys that differ by case only: "Zone" and "zone"`},
	"topology requirement that is empty": {createVolume(func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements = &csi.TopologyRequirement{}
	}), codes.InvalidArgument, "accessibility_requirements needs requisite or preferred"},
	"preferred topology outside the requisite": {createVolume(func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements.Preferred[0].Segments["rack"] = "R2"
	}), codes.InvalidArgument, "has preferred[0], which is not among"},
	"preferred topology alone": {createVolume(func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements.Requisite = nil }), good, ""},

	"secret key with a space": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"pass word": "x"} }),
		codes.InvalidArgument, "secrets has a key that is not of",
	},
	"secret key that is empty": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"": "x"} }), codes.InvalidArgument, "secrets",
	},
	"secret key of a kubelet": {
		createVolume(func(r *csi.CreateVolumeRequest) {
			r.Secrets = map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "x"}
		}), good, "",
	},
	"secret key like that of a kubelet": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"csi.storage.k8s.io/other": "x"} }),
		codes.InvalidArgument, "secrets has a key that is not of",
	},
	"secret key of all kinds": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"a-B_9.": ""} }), good, "",
	},

	"capacity range":               {withRange(1, 1), good, ""},
	"capacity limit alone":         {withRange(0, 1), good, ""},
	"capacity range neither set":   {withRange(0, 0), codes.InvalidArgument, "capacity_range needs required_bytes or limit_bytes"},
	"capacity limit less":          {withRange(2, 1), codes.InvalidArgument, "capacity_range has limit_bytes 1, less than required_bytes 2"},
	"capacity required negative":   {withRange(-1, 1), codes.InvalidArgument, "capacity_range.required_bytes is negative"},
	"capacity limit negative":      {withRange(1, -1), codes.InvalidArgument, "capacity_range.limit_bytes is negative"},
	"list of a negative number":    {&csi.ListVolumesRequest{MaxEntries: -1}, codes.InvalidArgument, "max_entries is negative"},
	"health of a negative number":  {&csi.ControllerListVolumeHealthRequest{MaxEntries: -1}, codes.InvalidArgument, "max_entries"},
	"list with an odd token":       {&csi.ListVolumesRequest{StartingToken: strings.Repeat("\x01", 200)}, good, ""},
	"metadata from before 0":       {change(func(r *csi.GetMetadataDeltaRequest) { r.StartingOffset = -1 }), codes.OutOfRange, "starting_offset"},
	"metadata of negative results": {change(func(r *csi.GetMetadataDeltaRequest) { r.MaxResults = -1 }), codes.InvalidArgument, "max_results"},

	"capability without access type": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }),
		codes.InvalidArgument, "volume_capabilities[0] needs an access_type",
	},
	"capability without access mode": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil }),
		codes.InvalidArgument, "volume_capabilities[0] needs an access_mode",
	},
	"capability with access mode UNKNOWN": {
		publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.AccessMode.Mode = 0 }),
		codes.InvalidArgument, "volume_capability needs an access_mode",
	},
	"capability of a later CSI": {
		publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.AccessMode.Mode = 77 }),
		codes.InvalidArgument, "access_mode 77",
	},
	"validation of a later CSI's capability": {
		change(func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeCapabilities[0].AccessMode.Mode = 77 }), good, "",
	},
	"validation without access type": {
		change(func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeCapabilities[0].AccessType = nil }),
		codes.InvalidArgument, "access_type",
	},
	// As external-provisioner asks for CSIStorageCapacity.
	"capacity for access mode UNKNOWN": {&csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{{
		AccessType: &csi.VolumeCapability_Mount{}, AccessMode: &csi.VolumeCapability_AccessMode{},
	}}}, good, ""},

	"source that is neither": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }),
		codes.InvalidArgument, "volume_content_source names neither",
	},
	"source without its id": {
		createVolume(func(r *csi.CreateVolumeRequest) { r.VolumeContentSource.GetVolume().VolumeId = "" }),
		codes.InvalidArgument, "volume_content_source.volume lacks volume_id",
	},
	"source snapshot without its id": {createVolume(func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource.Type = &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{}}
	}), codes.InvalidArgument, "volume_content_source.snapshot lacks snapshot_id"},
}

func TestLimits(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{})
	for name, c := range limitCases {
		t.Run(name, func(t *testing.T) {
			err := call(t.Context(), conn, c.request)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.Contains(t, status.Convert(err).Message(), c.says)
			require.Empty(t, status.Convert(err).Details())
		})
	}
}

func TestWhatIsForgivenIsRefusedByStrictServers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4097)
	cases := map[string]struct {
		request proto.Message
		finding string
	}{
		"long parameters":     {createVolume(func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"k": long} }), "parameters has 4098 bytes in all, more than 4096"},
		"long volume context": {publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeContext = map[string]string{"k": long} }), "volume_context has 4098 bytes in all, more than 4096"},
		"long secrets":        {publish(func(r *csi.NodePublishVolumeRequest) { r.Secrets = map[string]string{"k": long} }), "secrets has 4098 bytes in all, more than 4096"},
		"long mount flags": {publish(func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.GetMount().MountFlags = []string{"ro", long}
		}), "volume_capability.mount.mount_flags has 4099 bytes in all, more than 4096"},
		"made-up volume path": {change(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = "some/path" }), `volume_path must be an absolute path: check path "some/path": is not absolute`},
		"capacity for access mode UNKNOWN": {&csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}}}, "volume_capabilities[0] needs an access_mode other than UNKNOWN"},
	}
	strict := serve(t, rpc.Options{Strict: true})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var found []string
			lenient := serve(t, rpc.Options{Finding: func(_ context.Context, f rpc.Finding) {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, f.String())
			}})
			require.Equal(t, good, status.Code(call(t.Context(), lenient, c.request)))
			require.Equal(t, []string{c.finding}, found)

			err := call(t.Context(), strict, c.request)
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.Contains(t, err.Error(), c.finding)
		})
	}
}

func TestMapsOf4KiBAreFine(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{Strict: true})
	request := createVolume(func(r *csi.CreateVolumeRequest) {
		r.Parameters = map[string]string{"key": strings.Repeat("x", 4093)}
	})
	require.Equal(t, good, status.Code(call(t.Context(), conn, request)))
}

// Topologies of thousands of nodes come with every volume where each node is
// one, and must not be compared each with each.
func TestThousandsOfTopologies(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{})
	request := createVolume(func(r *csi.CreateVolumeRequest) {
		all := &csi.TopologyRequirement{}
		for i := range 2000 {
			node := &csi.Topology{Segments: map[string]string{"node": fmt.Sprint("n", i)}}
			all.Requisite = append(all.Requisite, node)
			all.Preferred = append(all.Preferred, node)
		}
		r.AccessibilityRequirements = all
	})
	require.Equal(t, good, status.Code(call(t.Context(), conn, request)))
}

// rawCodec sends bytes as they are: a Go client would not let invalid UTF-8 out.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

func TestInvalidUTF8IsRefused(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{})
	var out []byte
	err := conn.Invoke(t.Context(), csi.Controller_DeleteVolume_FullMethodName, []byte("\x0a\x02\xff\xfe"), &out, grpc.ForceCodecV2(rawCodec{}))
	require.Equal(t, codes.Internal, status.Code(err), "grpc answers before any of our code")
	require.Contains(t, err.Error(), "invalid UTF-8")
	require.Equal(t, good, status.Code(conn.Invoke(t.Context(), csi.Controller_DeleteVolume_FullMethodName, []byte("\x0a\x02ok"), &out, grpc.ForceCodecV2(rawCodec{}))))
}

// Newer clients send fields that CSI 1.13 does not know.
func TestUnknownFieldsPass(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{Strict: true})
	request := &csi.DeleteVolumeRequest{VolumeId: "vol-1"}
	request.ProtoReflect().SetUnknown(protoreflect.RawFields("\xfa\x3f\x03new"))
	require.Equal(t, good, status.Code(call(t.Context(), conn, request)))
}

// FuzzInspect feeds any bytes to any method: whatever they are, the chain gives a
// proper status.
func FuzzInspect(f *testing.F) {
	all := complete()
	for i, request := range all {
		data, err := proto.Marshal(request)
		require.NoError(f, err)
		f.Add(uint8(i), data)
	}
	conn := serve(f, rpc.Options{Strict: true})
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		request := all[int(which)%len(all)].ProtoReflect().New().Interface()
		if proto.Unmarshal(data, request) != nil {
			return
		}
		err := call(t.Context(), conn, request)
		switch code := status.Code(err); code {
		case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
			require.NotEmpty(t, status.Convert(err).Message())
		default:
			require.Failf(t, "unexpected status", "%v", err)
		}
	})
}
