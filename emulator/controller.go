package emulator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
)

// controllerServer is CSI's Controller service. Required fields, limits, locks
// and disabled capabilities are dealt with before a method is called
// (emulator/rpc), and errors become codes after it.
type controllerServer struct {
	csi.UnimplementedControllerServer
	profile *Profile
	array   *array.Array
}

func (s *controllerServer) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range s.profile.Controller {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

func (s *controllerServer) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	for _, c := range req.GetVolumeCapabilities() {
		if err := s.profile.allows(c); err != nil {
			return nil, fmt.Errorf("create volume %q: %w", req.GetName(), err)
		}
	}
	source, err := s.source(req.GetVolumeContentSource())
	if err != nil {
		return nil, fmt.Errorf("create volume %q: %w", req.GetName(), err)
	}
	v, err := s.array.Create(ctx, array.CreateRequest{
		Name:              req.GetName(),
		RequiredBytes:     req.GetCapacityRange().GetRequiredBytes(),
		LimitBytes:        req.GetCapacityRange().GetLimitBytes(),
		Capabilities:      access.AllFromCSI(req.GetVolumeCapabilities()),
		Parameters:        withoutKubernetes(req.GetParameters()),
		MutableParameters: req.GetMutableParameters(),
		Source:            source,
		Requisite:         segments(req.GetAccessibilityRequirements().GetRequisite()),
		Preferred:         segments(req.GetAccessibilityRequirements().GetPreferred()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: volumeMessage(v)}, nil
}

// source reads what a volume is to be made from.
func (s *controllerServer) source(c *csi.VolumeContentSource) (array.Source, error) {
	switch {
	case c.GetSnapshot() != nil:
		if !s.profile.controller(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT) {
			return array.Source{}, fmt.Errorf("restore a snapshot: this driver has none: %w", backends.ErrInvalid)
		}
		return array.Source{SnapshotID: c.GetSnapshot().GetSnapshotId()}, nil
	case c.GetVolume() != nil:
		if !s.profile.controller(csi.ControllerServiceCapability_RPC_CLONE_VOLUME) {
			return array.Source{}, fmt.Errorf("clone a volume: this driver does not clone: %w", backends.ErrInvalid)
		}
		return array.Source{VolumeID: c.GetVolume().GetVolumeId()}, nil
	}
	return array.Source{}, nil
}

func (s *controllerServer) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := s.array.Delete(ctx, req.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (s *controllerServer) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	// The volume and the node come first: what a capability means for a volume
	// that does not exist is of no interest.
	if _, err := s.array.Volume(req.GetVolumeId()); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if err := s.profile.allows(req.GetVolumeCapability()); err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", req.GetVolumeId(), err)
	}
	if req.GetReadonly() && !s.profile.controller(csi.ControllerServiceCapability_RPC_PUBLISH_READONLY) {
		return nil, fmt.Errorf("attach volume %s: readonly is not supported by this driver: %w", req.GetVolumeId(), backends.ErrInvalid)
	}
	publishContext, err := s.array.Attach(ctx, req.GetVolumeId(), array.Attachment{
		NodeID: req.GetNodeId(), ReadOnly: req.GetReadonly(), Capability: access.FromCSI(req.GetVolumeCapability()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: publishContext}, nil
}

func (s *controllerServer) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := s.array.Detach(ctx, req.GetVolumeId(), req.GetNodeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (s *controllerServer) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	v, err := s.array.Volume(req.GetVolumeId())
	if err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	types := access.TypesOf(v.Capabilities)
	for _, c := range req.GetVolumeCapabilities() {
		err := s.profile.allows(c)
		if err == nil {
			err = types.Allow(access.FromCSI(c))
		}
		if err == nil {
			err = s.array.CanServe(v, access.FromCSI(c))
		}
		if err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
		}
	}
	for key, value := range req.GetParameters() {
		if have, ok := v.Parameters[key]; !ok || have != value {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: fmt.Sprintf("the volume was created without this value of parameter %q", key)}, nil
		}
	}
	for key, value := range req.GetMutableParameters() {
		if have, ok := v.Mutable[key]; !ok || have != value {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: fmt.Sprintf("the volume does not have this value of mutable parameter %q", key)}, nil
		}
	}
	if len(req.GetVolumeContext()) > 0 {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume was created without a volume context"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
		MutableParameters: req.GetMutableParameters(),
	}}, nil
}

func (s *controllerServer) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, next, err := s.array.List(req.GetStartingToken(), int(req.GetMaxEntries()))
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	nodes := s.profile.controller(csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	resp := &csi.ListVolumesResponse{NextToken: next, Entries: make([]*csi.ListVolumesResponse_Entry, 0, len(volumes))}
	for _, v := range volumes {
		entry := &csi.ListVolumesResponse_Entry{Volume: volumeMessage(v)}
		if nodes || s.profile.VolumeCondition {
			entry.Status = &csi.ListVolumesResponse_VolumeStatus{}
		}
		if nodes {
			entry.Status.PublishedNodeIds = v.NodeIDs()
		}
		if err := s.addCondition(ctx, entry.GetStatus(), v); err != nil {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}

func (s *controllerServer) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	v, err := s.array.Volume(req.GetVolumeId())
	if err != nil {
		return nil, fmt.Errorf("get %w", err)
	}
	resp := &csi.ControllerGetVolumeResponse{Volume: volumeMessage(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{}}
	if s.profile.attaches() {
		resp.Status.PublishedNodeIds = v.NodeIDs()
	}
	return resp, s.addCondition(ctx, resp.GetStatus(), v)
}

func (s *controllerServer) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := s.array.Modify(ctx, req.GetVolumeId(), req.GetMutableParameters()); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (s *controllerServer) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := s.allowsExpansion(req); err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", req.GetVolumeId(), err)
	}
	online := slices.Contains(s.profile.Expansion, csi.PluginCapability_VolumeExpansion_ONLINE)
	v, err := s.array.Expand(ctx, req.GetVolumeId(), req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes(), online)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes: v.Layout.SizeBytes,
		// The array grows the device under a block volume by itself; a file
		// system has to be grown where it is mounted.
		NodeExpansionRequired: s.profile.node(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) &&
			access.TypesOf(v.Capabilities).Filesystem && req.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

// allowsExpansion checks the capability, which is optional, against the driver
// and the volume.
func (s *controllerServer) allowsExpansion(req *csi.ControllerExpandVolumeRequest) error {
	c := req.GetVolumeCapability()
	if c == nil {
		return nil
	}
	v, err := s.array.Volume(req.GetVolumeId())
	if err != nil {
		return err
	}
	if err := s.profile.allows(c); err != nil {
		return err
	}
	return access.TypesOf(v.Capabilities).Allow(access.FromCSI(c))
}

func volumeMessage(v *array.Volume) *csi.Volume {
	m := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Layout.SizeBytes}
	m.AccessibleTopology = topologies(v.Accessible)
	switch {
	case v.Source.SnapshotID != "":
		m.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.Source.SnapshotID},
		}}
	case v.Source.VolumeID != "":
		m.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Source.VolumeID},
		}}
	}
	return m
}

func topologies(all []map[string]string) []*csi.Topology {
	var out []*csi.Topology
	for _, s := range all {
		out = append(out, &csi.Topology{Segments: s})
	}
	return out
}

func segments(all []*csi.Topology) []map[string]string {
	var out []map[string]string
	for _, t := range all {
		out = append(out, t.GetSegments())
	}
	return out
}

func timestamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }
