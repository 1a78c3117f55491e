package model_test

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends/memory"
)

// model is what the specification says, for one family of objects.
type model struct {
	// names are the names of all volumes and snapshots of the family by their
	// ids, as calls that were answered told them.
	names map[string]string
	// devices says that volumes are real: what a node has staged stays dead
	// when the device below it is detached.
	devices bool
}

// verdict is which codes are right, and the state after OK: nil if the reply
// is not.
type verdict struct {
	codes []codes.Code
	next  *state
}

func refuse(c ...codes.Code) verdict { return verdict{codes: c} }

// succeed is OK with a reply that is right or not; of a lost call nobody knows
// the reply.
func succeed(next *state, replied, right bool) verdict {
	if replied && !right {
		next = nil
	}
	return verdict{codes: []codes.Code{codes.OK}, next: next}
}

// step is a stepper.
func (m *model) step(s *state, o *operation) *state {
	v := m.answer(s, o)
	switch {
	case o.lost && slices.Contains(v.codes, codes.OK):
		return v.next
	case o.lost || !slices.Contains(v.codes, o.code):
		return nil
	case o.code == codes.OK:
		return v.next
	}
	return s
}

func (m *model) answer(s *state, o *operation) verdict {
	switch r := o.request.(type) {
	case *csi.CreateVolumeRequest:
		return m.create(s, r, as[*csi.CreateVolumeResponse](o))
	case *csi.DeleteVolumeRequest:
		return m.delete(s, r.GetVolumeId())
	case *csi.ControllerPublishVolumeRequest:
		return m.attach(s, r, as[*csi.ControllerPublishVolumeResponse](o))
	case *csi.ControllerUnpublishVolumeRequest:
		return m.detach(s, r.GetVolumeId(), r.GetNodeId())
	case *csi.ControllerExpandVolumeRequest:
		return m.expand(s, r, as[*csi.ControllerExpandVolumeResponse](o))
	case *csi.ValidateVolumeCapabilitiesRequest:
		reply := as[*csi.ValidateVolumeCapabilitiesResponse](o)
		if !s.volumes[r.GetVolumeId()].exists {
			return refuse(codes.NotFound)
		}
		return succeed(s, reply != nil, reply.GetConfirmed() != nil)
	case *csi.ListVolumesRequest:
		return m.list(s, as[*csi.ListVolumesResponse](o))
	case *csi.CreateSnapshotRequest:
		return m.cut(s, r, as[*csi.CreateSnapshotResponse](o))
	case *csi.DeleteSnapshotRequest:
		return m.deleteSnapshot(s, r.GetSnapshotId())
	case *csi.ListSnapshotsRequest:
		return m.listSnapshots(s, as[*csi.ListSnapshotsResponse](o))
	}
	return m.answerOfNode(s, o)
}

// as returns the reply of an operation, nil if there is none.
func as[M any](o *operation) (reply M) {
	reply, _ = o.reply.(M)
	return reply
}

func (m *model) create(s *state, r *csi.CreateVolumeRequest, reply *csi.CreateVolumeResponse) verdict {
	source := r.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	size, got := r.GetCapacityRange().GetRequiredBytes(), reply.GetVolume()
	if id, ok := s.names[r.GetName()]; ok {
		v := s.volumes[id]
		if v.size < size || v.source != source {
			return refuse(codes.AlreadyExists)
		}
		if reply == nil {
			return succeed(s, false, true)
		}
		next, ok := s.identify(r.GetName(), got.GetVolumeId())
		return succeed(next, true, ok && got.GetCapacityBytes() == v.size)
	}
	if source != "" {
		_, snap, ok := s.snapshotByID(source)
		if !ok {
			return refuse(codes.NotFound)
		}
		if size < snap.size {
			return refuse(codes.OutOfRange)
		}
	}
	id := unknown(r.GetName())
	if reply != nil {
		id = got.GetVolumeId()
	}
	_, known := s.volumes[id]
	next := s.clone()
	next.names[r.GetName()] = id
	next.volumes[id] = volume{name: r.GetName(), source: source, exists: true, made: size, size: size}
	return succeed(next, reply != nil, !known && !s.gone[id] && got.GetCapacityBytes() == size &&
		got.GetContentSource().GetSnapshot().GetSnapshotId() == source)
}

func (m *model) delete(s *state, id string) verdict {
	v := s.volumes[id]
	switch {
	case !v.exists:
		return succeed(s, true, true)
	case len(v.attached) > 0:
		return refuse(codes.FailedPrecondition)
	}
	next := s.with(id, func(v *volume) { v.exists = false })
	delete(next.names, v.name)
	next.gone[id] = true
	return succeed(next, true, true)
}

func (m *model) attach(s *state, r *csi.ControllerPublishVolumeRequest, reply *csi.ControllerPublishVolumeResponse) verdict {
	id, node := r.GetVolumeId(), r.GetNodeId()
	v := s.volumes[id]
	want := usage{r.GetVolumeCapability().GetAccessMode().GetMode(), r.GetReadonly()}
	if !v.exists || !slices.Contains(nodes, node) {
		return refuse(codes.NotFound)
	}
	device := reply.GetPublishContext()[memory.AttachmentKey]
	if have, ok := v.attached[node]; ok {
		switch {
		case have != want:
			return refuse(codes.AlreadyExists)
		case reply == nil || device == v.device:
			return succeed(s, true, true)
		}
		next := s.with(id, func(v *volume) { v.device = device })
		return succeed(next, true, isUnknown(v.device) && !s.gone[device])
	}
	for _, have := range v.attached {
		if !several(have.mode) || !several(want.mode) {
			return refuse(codes.FailedPrecondition)
		}
	}
	if v.device != "" && v.readOnly && !readsOnly(want) || m.devices && v.leaving() {
		return refuse(codes.FailedPrecondition)
	}
	right := device != "" && !s.gone[device] && (v.device == "" || isUnknown(v.device) || v.device == device)
	next := s.with(id, func(v *volume) {
		if v.attached == nil {
			v.attached = map[string]usage{}
		}
		v.attached[node] = want
		if v.device == "" {
			v.device, v.readOnly = unknown(""), readsOnly(want)
		}
		if device != "" {
			v.device = device
		}
	})
	return succeed(next, reply != nil, right)
}

// several says whether a mode lets several nodes attach a volume, and one node
// publish it at several targets.
func several(mode csi.VolumeCapability_AccessMode_Mode) bool { return mode != writer }

func readsOnly(u usage) bool { return u.readOnly || u.mode == reader }

// leaving says whether a node still uses the device of an attachment of before.
func (v volume) leaving() bool {
	for _, st := range v.staged {
		if st.device != v.device {
			return true
		}
	}
	return false
}

func (m *model) detach(s *state, id, node string) verdict {
	v := s.volumes[id]
	if _, ok := v.attached[node]; !ok && (node != "" || len(v.attached) == 0) {
		return succeed(s, true, true)
	}
	next := s.with(id, func(v *volume) {
		delete(v.attached, node)
		if node == "" {
			v.attached = nil
		}
		if len(v.attached) == 0 {
			v.device, v.readOnly = "", false
		}
	})
	if next.volumes[id].device == "" && !isUnknown(v.device) {
		next.gone[v.device] = true
	}
	return succeed(next, true, true)
}

func (m *model) expand(s *state, r *csi.ControllerExpandVolumeRequest, reply *csi.ControllerExpandVolumeResponse) verdict {
	id := r.GetVolumeId()
	v := s.volumes[id]
	if !v.exists {
		return refuse(codes.NotFound)
	}
	size, next := max(v.size, r.GetCapacityRange().GetRequiredBytes()), s
	if size > v.size {
		next = s.with(id, func(v *volume) { v.size = size })
	}
	return succeed(next, reply != nil, reply.GetCapacityBytes() == size && reply.GetNodeExpansionRequired())
}
