package conformance_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/conformance"
)

// spoil changes an answer of a driver; it returns what the caller gets.
type spoil func(request, response proto.Message, err error) error

// spoiling is a connection to a driver that has a fault in one RPC.
func spoiling(rpc string, fault spoil) grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, response, conn, options...)
		if path.Base(method) != rpc {
			return err
		}
		return fault(request.(proto.Message), response.(proto.Message), err)
	})
}

// answer is a spoil that changes only the messages of answers.
func answer[R proto.Message](edit func(R)) spoil {
	return func(_, response proto.Message, err error) error {
		if err == nil {
			edit(response.(R))
		}
		return err
	}
}

// always is a spoil that turns one code into another.
func always(from, to codes.Code) spoil {
	return func(_, _ proto.Message, err error) error {
		if status.Code(err) == from {
			return status.Error(to, "spoiled")
		}
		return err
	}
}

// TestRowsFindFaults gives a driver one fault at a time, which a row has to find.
func TestRowsFindFaults(t *testing.T) {
	t.Parallel()
	calls := 0
	for name, c := range map[string]struct {
		rpc   string
		fault spoil
		row   string
		says  string
	}{
		"a name that is none": {
			"GetPluginInfo", answer(func(r *csi.GetPluginInfoResponse) { r.Name = "-a/b" }),
			"GetPluginInfo: answers a name in domain form", `got "-a/b"`,
		},
		"a capability twice": {
			"ControllerGetCapabilities", answer(func(r *csi.ControllerGetCapabilitiesResponse) {
				r.Capabilities = append(r.Capabilities, r.Capabilities[0])
			}),
			"ControllerGetCapabilities: names known capabilities, each once", "twice",
		},
		"a reserved capability": {
			"NodeGetCapabilities", answer(func(r *csi.NodeGetCapabilitiesResponse) { r.Capabilities[0].GetRpc().Type = 4 }),
			"NodeGetCapabilities: names known capabilities, each once", "reserved",
		},
		"a code that is not the right one": {
			"CreateVolume", always(codes.InvalidArgument, codes.Internal),
			"CreateVolume: refuses a request without a name", "want INVALID_ARGUMENT, got INTERNAL (spoiled)",
		},
		"an error without a message": {
			"DeleteVolume", func(_, _ proto.Message, err error) error {
				if err != nil {
					return status.Error(status.Code(err), "")
				}
				return nil
			},
			"DeleteVolume: refuses a request without a volume", "want a message for people",
		},
		"an error with details": {
			"DeleteVolume", func(_, _ proto.Message, err error) error {
				if err == nil {
					return nil
				}
				s, _ := status.New(status.Code(err), "m").WithDetails(&errdetails.ErrorInfo{Reason: "R"})
				return s.Err()
			},
			"DeleteVolume: refuses a request without a volume", "want empty status.details, got 1",
		},
		"a volume of another size": {
			"CreateVolume", answer(func(r *csi.CreateVolumeResponse) { r.Volume.CapacityBytes-- }),
			"CreateVolume: makes a volume at least as large as required", "want at least",
		},
		"a context past its limit": {
			"CreateVolume", answer(func(r *csi.CreateVolumeResponse) {
				r.Volume.VolumeContext = map[string]string{"k": strings.Repeat("v", 4096)}
			}),
			"CreateVolume: answers a volume with an id", "a map has at most 4096",
		},
		"another volume every time": {
			"CreateVolume", answer(func(r *csi.CreateVolumeResponse) {
				calls++
				r.Volume.VolumeContext = map[string]string{"call": fmt.Sprint(calls)}
			}),
			"CreateVolume: answers the same volume to the same request", "want the same volume",
		},
		"a topology without the capability": {
			"CreateVolume", answer(func(r *csi.CreateVolumeResponse) {
				r.Volume.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"a": "b"}}}
			}),
			"CreateVolume: tells where a volume is accessible from only with the capability", "want no accessible_topology",
		},
		"a page that is too long": {
			"ListVolumes", answer(func(r *csi.ListVolumesResponse) { r.Entries = append(r.Entries, r.Entries...) }),
			"ListVolumes: answers in pages that together are everything", "want at most 2 entries, got 4",
		},
		"a page without its successor": {
			"ListVolumes", answer(func(r *csi.ListVolumesResponse) { r.NextToken = "" }),
			"ListVolumes: answers in pages that together are everything", "is listed 1, got 0",
		},
		"a token that ends with a change": {
			"ListVolumes", func(request, _ proto.Message, err error) error {
				if request.(*csi.ListVolumesRequest).GetStartingToken() != "" {
					return status.Error(codes.Aborted, "the list has changed")
				}
				return err
			},
			"ListVolumes: goes on after a page while things come and go", "want OK, got ABORTED",
		},
		"a negative capacity": {
			"GetCapacity", answer(func(r *csi.GetCapacityResponse) { r.AvailableCapacity = -1 }),
			"GetCapacity: answers a capacity that is not negative", "must not be negative",
		},
		"a confirmation of everything": {
			"ValidateVolumeCapabilities", func(request, response proto.Message, err error) error {
				response.(*csi.ValidateVolumeCapabilitiesResponse).Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
					VolumeCapabilities: request.(*csi.ValidateVolumeCapabilitiesRequest).GetVolumeCapabilities(),
				}
				return err
			},
			"ValidateVolumeCapabilities: does not confirm a capability that the volume lacks", "want nothing confirmed",
		},
		"a snapshot without a time": {
			"CreateSnapshot", answer(func(r *csi.CreateSnapshotResponse) { r.Snapshot.CreationTime = nil }),
			"CreateSnapshot: answers a whole snapshot", "want a creation_time",
		},
		"a growth that was none": {
			"ControllerExpandVolume", answer(func(r *csi.ControllerExpandVolumeResponse) { r.CapacityBytes = 1 }),
			"ControllerExpandVolume: grows a volume", "want at least",
		},
		"a group without a member": {
			"CreateVolumeGroupSnapshot", answer(func(r *csi.CreateVolumeGroupSnapshotResponse) {
				r.GroupSnapshot.Snapshots[0].GroupSnapshotId = ""
			}),
			"CreateVolumeGroupSnapshot: answers a snapshot of every volume", "want group_snapshot_id of a member",
		},
		"health that is not CamelCase": {
			"ControllerGetVolumeHealth", answer(func(r *csi.ControllerGetVolumeHealthResponse) {
				r.VolumeHealth.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: "slow disk"}}
			}),
			"ControllerGetVolumeHealth: finds nothing wrong with a new volume", "want a reason in CamelCase",
		},
		"a second publication that is taken": {
			"NodePublishVolume", always(codes.AlreadyExists, codes.OK),
			"NodePublishVolume: published again, SINGLE_NODE_WRITER, same target, other readonly", "want ALREADY_EXISTS, got OK",
		},
		"a second target that is taken": {
			"NodePublishVolume", always(codes.FailedPrecondition, codes.OK),
			"NodePublishVolume: published again, SINGLE_NODE_SINGLE_WRITER, other target, same readonly", "want FAILED_PRECONDITION, got OK",
		},
		"a first node that is not named": {
			"ControllerPublishVolume", always(codes.FailedPrecondition, codes.FailedPrecondition),
			"ControllerPublishVolume: refuses a second node without a MULTI_NODE mode, and names the first", `want a message that names node "node-a"`,
		},
		"a volume that cannot be deleted": {
			"DeleteVolume", func(proto.Message, proto.Message, error) error { return status.Error(codes.Internal, "stuck") },
			"CreateVolume: answers a volume with an id", "take away volume",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "memory", newMemory, nil, spoiling(c.rpc, c.fault))
			target := s.target()
			target.NoData = true
			test, ok := conformance.All()[c.row]
			require.True(t, ok, c.row)
			result := test.Check(t.Context(), target)
			require.Equal(t, conformance.Fail, result.Outcome, result.Detail)
			require.Contains(t, result.Detail, c.says)
		})
	}
}
