package emulator

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/emulator/array"
)

func (s *controllerServer) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	snap, err := s.array.CreateSnapshot(ctx, array.SnapshotRequest{
		Name: req.GetName(), SourceID: req.GetSourceVolumeId(), Parameters: withoutKubernetes(req.GetParameters()),
		Requisite: segments(req.GetAccessibilityRequirements().GetRequisite()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: s.profile.snapshotMessage(snap)}, nil
}

func (s *controllerServer) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := s.array.DeleteSnapshot(ctx, req.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (s *controllerServer) ListSnapshots(_ context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	snapshots, next, err := s.array.ListSnapshots(req.GetStartingToken(), int(req.GetMaxEntries()), req.GetSnapshotId(), req.GetSourceVolumeId())
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next, Entries: make([]*csi.ListSnapshotsResponse_Entry, 0, len(snapshots))}
	for _, snap := range snapshots {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: s.profile.snapshotMessage(snap)})
	}
	return resp, nil
}

func (s *controllerServer) GetSnapshot(_ context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	snap, err := s.array.Snapshot(req.GetSnapshotId())
	if err != nil {
		return nil, fmt.Errorf("get %w", err)
	}
	return &csi.GetSnapshotResponse{Snapshot: s.profile.snapshotMessage(snap)}, nil
}

func (p *Profile) snapshotMessage(s *array.Snapshot) *csi.Snapshot {
	m := &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.SourceID, SizeBytes: s.Layout.SizeBytes, GroupSnapshotId: s.GroupID,
		CreationTime: timestamp(s.Created), ReadyToUse: true,
	}
	if p.plugin(csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS) {
		m.AccessibleTopology = topologies(s.Accessible)
	}
	return m
}
