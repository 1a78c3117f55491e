package model_test

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// list is ListVolumes as far as it concerns the family.
func (m *model) list(s *state, reply *csi.ListVolumesResponse) verdict {
	next, found := s, 0
	for _, entry := range reply.GetEntries() {
		id := entry.GetVolume().GetVolumeId()
		name, ours := m.names[id]
		if !ours {
			continue
		}
		found++
		var ok bool
		if next, ok = next.identify(name, id); !ok {
			return succeed(nil, true, false)
		}
		v := next.volumes[id]
		attached := slices.Sorted(slices.Values(entry.GetStatus().GetPublishedNodeIds()))
		if entry.GetVolume().GetCapacityBytes() != v.size || !slices.Equal(attached, slices.Sorted(maps.Keys(v.attached))) {
			return succeed(nil, true, false)
		}
	}
	return succeed(next, true, found == len(s.names))
}

// cut is CreateSnapshot.
func (m *model) cut(s *state, r *csi.CreateSnapshotRequest, reply *csi.CreateSnapshotResponse) verdict {
	name, source, got := r.GetName(), r.GetSourceVolumeId(), reply.GetSnapshot()
	if have, ok := s.snapshots[name]; ok {
		if have.source != source {
			return refuse(codes.AlreadyExists)
		}
		if reply == nil {
			return succeed(s, false, true)
		}
		next, ok := s.identifySnapshot(name, got.GetSnapshotId())
		return succeed(next, true, ok && got.GetSizeBytes() == have.size && got.GetReadyToUse())
	}
	v := s.volumes[source]
	if !v.exists {
		return refuse(codes.NotFound)
	}
	id := unknown(name)
	if reply != nil {
		id = got.GetSnapshotId()
	}
	_, _, known := s.snapshotByID(id)
	next := s.clone()
	next.snapshots[name] = snapshot{id: id, source: source, size: v.size}
	out := succeed(next, reply != nil, !known && !s.gone[id] && got.GetSizeBytes() == v.size && got.GetReadyToUse() && got.GetSourceVolumeId() == source)
	if m.devices && v.leaving() {
		// A dead file system cannot be held still.
		out.codes = append(out.codes, codes.FailedPrecondition)
	}
	return out
}

func (m *model) deleteSnapshot(s *state, id string) verdict {
	name, _, ok := s.snapshotByID(id)
	if !ok {
		return succeed(s, true, true)
	}
	next := s.clone()
	delete(next.snapshots, name)
	next.gone[id] = true
	return succeed(next, true, true)
}

// listSnapshots is ListSnapshots as far as it concerns the family.
func (m *model) listSnapshots(s *state, reply *csi.ListSnapshotsResponse) verdict {
	next, found := s, 0
	for _, entry := range reply.GetEntries() {
		got := entry.GetSnapshot()
		name, ours := m.names[got.GetSnapshotId()]
		if !ours {
			continue
		}
		found++
		var ok bool
		if next, ok = next.identifySnapshot(name, got.GetSnapshotId()); !ok {
			return succeed(nil, true, false)
		}
		if want := next.snapshots[name]; got.GetSizeBytes() != want.size || got.GetSourceVolumeId() != want.source {
			return succeed(nil, true, false)
		}
	}
	return succeed(next, true, found == len(s.snapshots))
}
