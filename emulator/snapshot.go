package emulator

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/emulator/array"
)

func (s *controllerServer) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	snap, err := s.array.CreateSnapshot(ctx, req.GetName(), req.GetSourceVolumeId(), withoutKubernetes(req.GetParameters()))
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(snap)}, nil
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
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(snap)})
	}
	return resp, nil
}

func snapshotMessage(s *array.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.SourceID, SizeBytes: s.Layout.SizeBytes,
		CreationTime: timestamp(s.Created), ReadyToUse: true,
	}
}
