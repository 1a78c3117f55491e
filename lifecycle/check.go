package lifecycle

import (
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/journal"
)

// check compares a call with what the earlier ones said.
func (c *Checker) check(e *journal.Entry) []Finding {
	found := append(c.checkRetry(e), c.checkSecrets(e)...)
	report := func(r Rule, earlier *journal.Entry, format string, args ...any) {
		found = append(found, Finding{Rule: r, What: fmt.Sprintf(format, args...), Call: e, Earlier: earlier})
	}
	switch r := e.Request.(type) {
	case *csi.DeleteVolumeRequest:
		c.checkDelete(r.GetVolumeId(), report)
	case *csi.ControllerPublishVolumeRequest:
		c.checkAttach(r, report)
	case *csi.ControllerUnpublishVolumeRequest:
		c.checkDetach(r, report)
	case *csi.NodeStageVolumeRequest:
		c.checkStage(e, r, report)
	case *csi.NodeUnstageVolumeRequest:
		c.checkUnstage(e, r, report)
	case *csi.NodePublishVolumeRequest:
		c.checkPublish(e, r, report)
	case *csi.ControllerExpandVolumeRequest:
		c.checkExpand(r, report)
	case *csi.NodeExpandVolumeRequest:
		c.checkNodeExpand(e, r, report)
	}
	return found
}

type reporter func(r Rule, earlier *journal.Entry, format string, args ...any)

func (c *Checker) checkDelete(id string, report reporter) {
	for node, n := range c.peek(id).nodes {
		if c.o.Attaches && n.attached.is == yes {
			report(DeleteWhileAttached, n.attached.call, "volume %s is deleted while it is attached to node %s", id, node)
			continue
		}
		f, used := anyOf(n.staged)
		if !used {
			f, used = anyOf(n.published)
		}
		if used {
			report(DeleteWhileStaged, f.call, "volume %s is deleted while node %s uses it", id, node)
		}
	}
}

func (c *Checker) checkAttach(r *csi.ControllerPublishVolumeRequest, report reporter) {
	v := c.peek(r.GetVolumeId())
	c.checkVolumeContext(v, r.GetVolumeContext(), report)
	switch r.GetVolumeCapability().GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:
		return
	}
	for node, n := range v.nodes {
		if node != r.GetNodeId() && n.attached.is == yes {
			report(TwoNodes, n.attached.call, "volume %s is attached to node %s with a single-node mode while node %s has it", r.GetVolumeId(), r.GetNodeId(), node)
		}
	}
}

func (c *Checker) checkDetach(r *csi.ControllerUnpublishVolumeRequest, report reporter) {
	for node, n := range c.peek(r.GetVolumeId()).nodes {
		if r.GetNodeId() != "" && r.GetNodeId() != node {
			continue
		}
		if f, published := anyOf(n.published); published {
			report(DetachWhilePublished, f.call, "volume %s is detached from node %s, where it is published", r.GetVolumeId(), node)
		} else if f, staged := anyOf(n.staged); staged {
			report(DetachWhileStaged, f.call, "volume %s is detached from node %s, where it is staged", r.GetVolumeId(), node)
		}
	}
}

// isInline reports whether a volume has no life before NodePublishVolume.
func (c *Checker) isInline(volumeContext map[string]string) bool {
	return c.o.EphemeralKey != "" && volumeContext[c.o.EphemeralKey] == "true"
}

func (c *Checker) checkStage(e *journal.Entry, r *csi.NodeStageVolumeRequest, report reporter) {
	v := c.peek(r.GetVolumeId())
	n := v.on(e.Node)
	if c.o.Attaches && n.attached.is == no {
		report(StageBeforeAttach, n.attached.call, "volume %s is staged on node %s, where it is not attached", r.GetVolumeId(), e.Node)
	}
	c.checkContexts(v, n, r.GetVolumeContext(), r.GetPublishContext(), report)
}

func (c *Checker) checkUnstage(e *journal.Entry, r *csi.NodeUnstageVolumeRequest, report reporter) {
	if f, published := anyOf(c.peek(r.GetVolumeId()).on(e.Node).published); published {
		report(UnstageWhilePublished, f.call, "volume %s is unstaged on node %s, where it is published", r.GetVolumeId(), e.Node)
	}
}

func (c *Checker) checkExpand(r *csi.ControllerExpandVolumeRequest, report reporter) {
	for node, n := range c.peek(r.GetVolumeId()).nodes {
		if !c.o.Online && n.attached.is == yes {
			report(ExpandOrder, n.attached.call, "volume %s is expanded while node %s is attached, and the driver expands OFFLINE only", r.GetVolumeId(), node)
		}
	}
}

func (c *Checker) checkPublish(e *journal.Entry, r *csi.NodePublishVolumeRequest, report reporter) {
	if c.isInline(r.GetVolumeContext()) {
		return
	}
	v := c.peek(r.GetVolumeId())
	n := v.on(e.Node)
	if c.o.Attaches && n.attached.is == no {
		report(PublishBeforeAttach, n.attached.call, "volume %s is published on node %s, where it is not attached", r.GetVolumeId(), e.Node)
	} else if f := n.staged[r.GetStagingTargetPath()]; c.o.Stages && (f.is == no || f.call == nil && v.created != nil) {
		report(PublishBeforeStage, f.call, "volume %s is published on node %s, where it is not staged at %q", r.GetVolumeId(), e.Node, r.GetStagingTargetPath())
	}
	c.checkContexts(v, n, r.GetVolumeContext(), r.GetPublishContext(), report)
}

func (c *Checker) checkNodeExpand(e *journal.Entry, r *csi.NodeExpandVolumeRequest, report reporter) {
	v := c.peek(r.GetVolumeId())
	n := v.on(e.Node)
	if v.created != nil && !possible(n.staged) && !possible(n.published) {
		report(ExpandOrder, nil, "volume %s is expanded on node %s, where it is neither staged nor published", r.GetVolumeId(), e.Node)
	}
	if want := r.GetCapacityRange().GetRequiredBytes(); v.created != nil && v.size > 0 && want > v.size {
		report(ExpandOrder, v.created, "node %s is asked to expand volume %s to %d bytes, the controller promised %d", e.Node, r.GetVolumeId(), want, v.size)
	}
}

func (c *Checker) checkContexts(v *volume, n *onNode, volumeContext, publishContext map[string]string, report reporter) {
	c.checkVolumeContext(v, volumeContext, report)
	if c.o.Attaches && n.attached.is == yes && !maps.Equal(publishContext, n.publishContext) {
		report(PublishContextWrong, n.attached.call, "the publish context is not what ControllerPublishVolume answered for this node")
	}
}

// checkVolumeContext lets orchestrators add keys of their own, as the kubelet does
// for CSIDriver.spec.podInfoOnMount.
func (c *Checker) checkVolumeContext(v *volume, got map[string]string, report reporter) {
	if v.created == nil {
		return
	}
	for key, want := range v.context {
		if have, ok := got[key]; !ok || have != want {
			report(VolumeContextChanged, v.created, "key %q of the volume context came back as %q, not as %q", key, have, want)
		}
	}
}

// learn takes over what a call has done.
func (c *Checker) learn(e *journal.Entry) {
	c.learnRetry(e)
	ok := e.Code == codes.OK
	if _, known := c.volumes[e.Volume]; !ok && !known {
		return // nothing is known of it that could have changed
	}
	becomes := func(is knowledge) fact {
		if !ok {
			// It may have been done before it failed.
			is = unknown
		}
		return fact{is, e}
	}
	switch r := e.Request.(type) {
	case *csi.CreateVolumeRequest:
		c.learnCreate(e)
	case *csi.DeleteVolumeRequest:
		if ok {
			delete(c.volumes, r.GetVolumeId())
		}
	case *csi.ControllerPublishVolumeRequest:
		n := c.of(r.GetVolumeId()).on(r.GetNodeId())
		if ok || n.attached.is != yes {
			n.attached = becomes(yes)
		}
		if reply, is := e.Reply.(*csi.ControllerPublishVolumeResponse); is && ok {
			n.publishContext = reply.GetPublishContext()
		}
	case *csi.ControllerUnpublishVolumeRequest:
		for node, n := range c.of(r.GetVolumeId()).nodes {
			if r.GetNodeId() == "" || r.GetNodeId() == node {
				n.attached = becomes(no)
			}
		}
	case *csi.NodeStageVolumeRequest:
		c.of(r.GetVolumeId()).on(e.Node).staged[r.GetStagingTargetPath()] = becomes(yes)
	case *csi.NodeUnstageVolumeRequest:
		c.of(r.GetVolumeId()).on(e.Node).staged[r.GetStagingTargetPath()] = becomes(no)
	case *csi.NodePublishVolumeRequest:
		if !c.isInline(r.GetVolumeContext()) {
			c.of(r.GetVolumeId()).on(e.Node).published[r.GetTargetPath()] = becomes(yes)
		}
	case *csi.NodeUnpublishVolumeRequest:
		n := c.of(r.GetVolumeId()).on(e.Node)
		if ok {
			delete(n.published, r.GetTargetPath())
		} else {
			n.published[r.GetTargetPath()] = becomes(no)
		}
	case *csi.ControllerExpandVolumeRequest:
		if reply, is := e.Reply.(*csi.ControllerExpandVolumeResponse); is && ok {
			v := c.of(r.GetVolumeId())
			v.size = max(v.size, reply.GetCapacityBytes())
		}
	}
	c.prune(e.Volume)
}

// prune forgets a volume of which nothing is known any more.
func (c *Checker) prune(id string) {
	v, known := c.volumes[id]
	if !known || v.created != nil {
		return
	}
	for _, n := range v.nodes {
		if n.attached.is == yes || possible(n.staged) || possible(n.published) {
			return
		}
	}
	delete(c.volumes, id)
}

func (c *Checker) learnCreate(e *journal.Entry) {
	reply, ok := e.Reply.(*csi.CreateVolumeResponse)
	if !ok {
		return
	}
	made := reply.GetVolume()
	v := c.of(made.GetVolumeId())
	if v.created == nil {
		v.created, v.context = e, made.GetVolumeContext()
	}
	v.size = max(v.size, made.GetCapacityBytes())
}
