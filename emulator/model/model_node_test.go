package model_test

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends/memory"
)

func (m *model) answerOfNode(s *state, o *operation) verdict {
	switch r := o.request.(type) {
	case *csi.NodeStageVolumeRequest:
		return m.stage(s, o.node, r)
	case *csi.NodeUnstageVolumeRequest:
		return m.unstage(s, o.node, r)
	case *csi.NodePublishVolumeRequest:
		return m.publish(s, o.node, r)
	case *csi.NodeUnpublishVolumeRequest:
		return m.unpublish(s, o.node, r)
	case *csi.NodeGetVolumeStatsRequest:
		reply := as[*csi.NodeGetVolumeStatsResponse](o)
		return m.look(s, o.node, r.GetVolumeId(), r.GetVolumePath(), reply != nil, func() int64 { return reply.GetUsage()[0].GetTotal() })
	case *csi.NodeExpandVolumeRequest:
		reply := as[*csi.NodeExpandVolumeResponse](o)
		out := m.look(s, o.node, r.GetVolumeId(), r.GetVolumePath(), reply != nil, reply.GetCapacityBytes)
		if m.devices && slices.Contains(out.codes, codes.OK) {
			// ext4 that grew grows while it is mounted with privileges only.
			out.codes = append(out.codes, codes.FailedPrecondition)
		}
		return out
	}
	panic(fmt.Sprintf("the model knows no %T", o.request))
}

// dead says whether the device below a staged volume was taken away. What works
// then is for the kernel to say.
func (m *model) dead(v volume, node string) bool {
	st, ok := v.staged[node]
	return m.devices && ok && (!v.exists || st.device != v.device)
}

func (m *model) stage(s *state, node string, r *csi.NodeStageVolumeRequest) verdict {
	id, mode := r.GetVolumeId(), r.GetVolumeCapability().GetAccessMode().GetMode()
	v := s.volumes[id]
	if st, ok := v.staged[node]; ok {
		switch {
		case st.path != r.GetStagingTargetPath():
			return refuse(codes.FailedPrecondition)
		case st.mode != mode:
			return refuse(codes.AlreadyExists)
		}
		return succeed(s, true, true)
	}
	// All nodes that a volume is attached to share its device, so the context
	// of another node's attachment is as good.
	device := r.GetPublishContext()[memory.AttachmentKey]
	switch {
	case !v.exists && m.devices && device != "":
		return refuse(codes.NotFound, codes.FailedPrecondition) // fenced, while another node has it
	case !v.exists:
		return refuse(codes.NotFound)
	case device == "" || device != v.device:
		return refuse(codes.FailedPrecondition)
	}
	return succeed(s.withStaging(id, node, func(st *staging) {
		st.path, st.mode, st.device = r.GetStagingTargetPath(), mode, device
	}), true, true)
}

func (m *model) unstage(s *state, node string, r *csi.NodeUnstageVolumeRequest) verdict {
	st, ok := s.volumes[r.GetVolumeId()].staged[node]
	switch {
	case !ok || st.path != r.GetStagingTargetPath():
		return succeed(s, true, true)
	case len(st.targets) > 0:
		return refuse(codes.FailedPrecondition)
	}
	return succeed(s.with(r.GetVolumeId(), func(v *volume) { delete(v.staged, node) }), true, true)
}

func (m *model) publish(s *state, node string, r *csi.NodePublishVolumeRequest) verdict {
	v := s.volumes[r.GetVolumeId()]
	st, ok := v.staged[node]
	switch {
	case !ok && !v.exists:
		return refuse(codes.NotFound)
	case !ok || st.path != r.GetStagingTargetPath():
		return refuse(codes.FailedPrecondition)
	}
	want := usage{r.GetVolumeCapability().GetAccessMode().GetMode(), r.GetReadonly()}
	var out verdict
	for path, have := range st.targets {
		switch {
		case path == r.GetTargetPath() && have != want:
			out.codes = append(out.codes, codes.AlreadyExists)
		case path != r.GetTargetPath() && (!several(have.mode) || !several(want.mode)):
			out.codes = append(out.codes, codes.FailedPrecondition)
		}
	}
	if len(out.codes) > 0 {
		return out
	}
	out = succeed(s, true, true)
	if _, ok := st.targets[r.GetTargetPath()]; !ok {
		out.next = s.withStaging(r.GetVolumeId(), node, func(st *staging) { st.targets[r.GetTargetPath()] = want })
	}
	if m.dead(v, node) {
		out.codes = append(out.codes, codes.FailedPrecondition)
	}
	return out
}

func (m *model) unpublish(s *state, node string, r *csi.NodeUnpublishVolumeRequest) verdict {
	if _, ok := s.volumes[r.GetVolumeId()].staged[node].targets[r.GetTargetPath()]; !ok {
		return succeed(s, true, true)
	}
	return succeed(s.withStaging(r.GetVolumeId(), node, func(st *staging) { delete(st.targets, r.GetTargetPath()) }), true, true)
}

// look is what tells of a volume at a path, with a size in the reply: one that
// the volume had at some time, as a node learns of growth a moment later. A file
// system has less than its device.
func (m *model) look(s *state, node, id, path string, replied bool, size func() int64) verdict {
	v := s.volumes[id]
	st, ok := v.staged[node]
	_, published := st.targets[path]
	if !ok || st.path != path && !published {
		return refuse(codes.NotFound)
	}
	right := true
	if replied {
		right = size() <= v.size && (m.devices || size() >= v.made)
	}
	out := succeed(s, replied, right)
	if m.dead(v, node) {
		out.codes = append(out.codes, codes.FailedPrecondition, codes.NotFound)
	}
	return out
}
