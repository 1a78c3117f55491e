package model_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends/memory"
)

// answered are operations one after the other.
func answered(all ...*operation) []*operation {
	for i, o := range all {
		o.call, o.end = int64(2*i+1), int64(2*i+2)
	}
	return all
}

func ok(request, reply proto.Message) *operation { return &operation{request: request, reply: reply} }

func refused(request proto.Message, code codes.Code) *operation {
	return &operation{request: request, code: code, harmless: true}
}

func created(id string) *operation {
	return ok(&csi.CreateVolumeRequest{Name: "v", CapacityRange: size(32 * mib)},
		&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: 32 * mib}})
}

func deleted(id string) *operation {
	return ok(&csi.DeleteVolumeRequest{VolumeId: id}, &csi.DeleteVolumeResponse{})
}

func listed(ids ...string) *operation {
	reply := &csi.ListVolumesResponse{}
	for _, id := range ids {
		reply.Entries = append(reply.Entries, &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id, CapacityBytes: 32 * mib}})
	}
	return ok(&csi.ListVolumesRequest{}, reply)
}

func attached(id, device string) *operation {
	return ok(&csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "node-1", VolumeCapability: capability(writer)},
		&csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{memory.AttachmentKey: device}})
}

// TestAWrongAnswerIsFound shows the comparison what a broken driver would answer.
func TestAWrongAnswerIsFound(t *testing.T) {
	t.Parallel()
	lost := deleted("a")
	lost.lost, lost.reply = true, nil
	for name, c := range map[string]struct {
		history []*operation
		right   bool
	}{
		"a life":                                 {answered(created("a"), listed("a"), deleted("a"), listed()), true},
		"created twice":                          {answered(created("a"), created("a")), true},
		"created twice with two ids":             {answered(created("a"), created("b")), false},
		"an id that comes back":                  {answered(created("a"), deleted("a"), created("a")), false},
		"a volume that is not listed":            {answered(created("a"), listed()), false},
		"a deleted volume that is listed":        {answered(created("a"), deleted("a"), listed("a")), false},
		"attached after its end":                 {answered(created("a"), deleted("a"), attached("a", "d")), false},
		"deleted while it is attached":           {answered(created("a"), attached("a", "d"), deleted("a")), false},
		"attached twice with two devices":        {answered(created("a"), attached("a", "d"), attached("a", "e")), false},
		"not found while it exists":              {answered(created("a"), refused(attached("a", "").request, codes.NotFound)), false},
		"internal":                               {answered(created("a"), refused(attached("a", "").request, codes.Internal)), false},
		"a deletion that was given up, and done": {answered(created("a"), lost, listed()), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &model{names: map[string]string{"a": "v", "b": "v"}}
			report := m.check(c.history)
			if c.right {
				require.Empty(t, report)
				return
			}
			require.Contains(t, report, "no order of the calls")
		})
	}
}
