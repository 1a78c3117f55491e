package emulator

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
)

// GetCapacity answers 0 for parameters, capabilities and segments with which
// nothing can be provisioned: the specification has no error for them.
func (s *controllerServer) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	for _, c := range req.GetVolumeCapabilities() {
		if s.profile.allows(c) != nil {
			return capacityMessage(array.Capacity{}), nil
		}
	}
	types := access.TypesOf(access.AllFromCSI(req.GetVolumeCapabilities()))
	if !types.Block && !types.Filesystem {
		types.Filesystem = true
	}
	var segment map[string]string
	if t := req.GetAccessibleTopology(); t != nil {
		segment = t.GetSegments()
	}
	c, err := s.array.Capacity(ctx, backends.Request{
		Block: types.Block, Filesystem: types.Filesystem, FSTypes: types.FSTypes, Parameters: withoutKubernetes(req.GetParameters()),
	}, segment)
	if err != nil && !errors.Is(err, backends.ErrInvalid) && !errors.Is(err, backends.ErrOutOfRange) {
		return nil, err
	}
	return capacityMessage(c), nil
}

func capacityMessage(c array.Capacity) *csi.GetCapacityResponse {
	resp := &csi.GetCapacityResponse{AvailableCapacity: c.Available, MaximumVolumeSize: wrapperspb.Int64(c.Maximum)}
	if c.Minimum > 0 {
		resp.MinimumVolumeSize = wrapperspb.Int64(c.Minimum)
	}
	return resp
}
