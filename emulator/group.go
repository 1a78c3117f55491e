package emulator

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/emulator/array"
)

// groupServer is CSI's GroupController service; see controllerServer.
type groupServer struct {
	csi.UnimplementedGroupControllerServer
	profile *Profile
	array   *array.Array
}

func (s *groupServer) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	resp := &csi.GroupControllerGetCapabilitiesResponse{}
	for _, c := range s.profile.Group {
		resp.Capabilities = append(resp.Capabilities, &csi.GroupControllerServiceCapability{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

func (s *groupServer) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	g, snapshots, err := s.array.CreateGroup(ctx, array.GroupRequest{
		Name: req.GetName(), SourceIDs: req.GetSourceVolumeIds(), Parameters: withoutKubernetes(req.GetParameters()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: s.message(g, snapshots)}, nil
}

func (s *groupServer) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if err := s.array.DeleteGroup(ctx, req.GetGroupSnapshotId(), req.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (s *groupServer) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	g, snapshots, err := s.array.GetGroup(ctx, req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: s.message(g, snapshots)}, nil
}

func (s *groupServer) message(g *array.Group, snapshots []*array.Snapshot) *csi.VolumeGroupSnapshot {
	m := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamp(g.Created), ReadyToUse: true}
	for _, snap := range snapshots {
		m.Snapshots = append(m.Snapshots, s.profile.snapshotMessage(snap))
	}
	return m
}
