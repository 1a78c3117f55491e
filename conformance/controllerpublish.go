package conformance

import (
	"maps"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// attachMost is the largest number of volumes that a row attaches.
const attachMost = 32

func (c *check) attachError(r *csi.ControllerPublishVolumeRequest) error {
	_, err := c.publishController(c.ctx, r)
	return err
}

func controllerPublishRows() []row {
	const rpc = "ControllerPublishVolume"
	needs := []need{creates, attaches}
	good := func(c *check) *csi.ControllerPublishVolumeRequest { return c.volume("v").attachRequest() }
	rows := refusals(rpc, needs, good, (*check).attachError,
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a request without a volume", clause: missingField, edit: func(r *csi.ControllerPublishVolumeRequest) { r.VolumeId = "" }},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a request without a node", clause: missingField, edit: func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = "" }},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a request without a capability", clause: missingField, edit: func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = nil }},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a capability without an access type", clause: missingField, edit: func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability.AccessType = nil }},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a capability without an access mode", clause: missingField, edit: func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability.AccessMode = nil }},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r *csi.ControllerPublishVolumeRequest) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
		spoiled[*csi.ControllerPublishVolumeRequest]{name: "refuses a node that does not exist", clause: "no node has this id: NOT_FOUND", edit: func(r *csi.ControllerPublishVolumeRequest) { r.NodeId = "conformance-nowhere" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "publishes a volume to a node", clause: "the volume is made available on the node; publish_context keeps to the limits", needs: needs, run: func(c *check) {
			resp, err := c.publishController(c.ctx, c.volume("v").attachRequest())
			c.ok(err)
			c.limits(resp)
		}},
		row{rpc: rpc, name: "answers the same a second time", clause: "already published there, and compatible: OK", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			resp, err := c.publishController(c.ctx, v.attachRequest())
			if c.code(err, codes.OK) && !maps.Equal(resp.GetPublishContext(), v.publishContext) {
				c.Errorf("want publish_context %v, got %v", v.publishContext, resp.GetPublishContext())
			}
		}},
		row{rpc: rpc, name: "refuses another capability at the same node", clause: "published there with another capability: ALREADY_EXISTS", needs: needs, run: func(c *check) {
			// Both modes are the volume's, so that only the first use is in the way.
			one, two := c.capability(singleWriter), c.capability(c.sharedMode())
			c.with("probe", two)
			v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{one, two} })
			v.attach()
			r := v.attachRequest()
			r.VolumeCapability = two
			c.code(c.attachError(r), codes.AlreadyExists)
		}},
		row{rpc: rpc, name: "refuses another readonly at the same node", clause: "published there with another readonly: ALREADY_EXISTS", needs: append(needs, attachesReadOnly), run: func(c *check) {
			v := c.volume("v")
			v.attach()
			r := v.attachRequest()
			r.Readonly = true
			c.code(c.attachError(r), codes.AlreadyExists)
		}},
		row{rpc: rpc, name: "publishes a volume for reading", clause: "PUBLISH_READONLY tells that readonly is supported", needs: append(needs, attachesReadOnly), run: func(c *check) {
			r := c.volume("v").attachRequest()
			r.Readonly = true
			c.code(c.attachError(r), codes.OK)
			c.code(c.attachError(r), codes.OK)
		}},
		row{rpc: rpc, name: "publishes a volume again after it was unpublished", clause: "an unpublished volume may be published with other arguments", needs: append(needs, attachesReadOnly), run: func(c *check) {
			v := c.volume("v")
			v.attach()
			v.detach()
			r := v.attachRequest()
			r.Readonly = true
			c.code(c.attachError(r), codes.OK)
		}},
		row{rpc: rpc, name: "refuses a capability that the volume does not have", clause: "the volume must be usable as described, or the call fails", needs: needs, run: func(c *check) {
			v := c.volume("v")
			r := v.attachRequest()
			r.VolumeCapability = v.unsupported()
			c.code(c.attachError(r), codes.InvalidArgument, codes.FailedPrecondition)
		}},
		row{rpc: rpc, name: "refuses a second node without a MULTI_NODE mode, and names the first", clause: "published at another node: FAILED_PRECONDITION, whose message should name that node", needs: needs, run: func(c *check) {
			c.secondNode()
			v := c.volume("v")
			v.attach()
			r := v.attachRequest()
			r.NodeId = c.SecondNodeID
			err := c.attachError(r)
			if c.code(err, codes.FailedPrecondition) && !strings.Contains(status.Convert(err).Message(), v.node()) {
				c.Errorf("want a message that names node %q, got %q", v.node(), status.Convert(err).Message())
			}
		}},
		row{rpc: rpc, name: "publishes a volume to two nodes with a MULTI_NODE mode", clause: "a volume with a MULTI_NODE mode may be published to several nodes", needs: needs, run: func(c *check) {
			c.secondNode()
			v := c.with("v", c.capability(multiNode))
			v.attach()
			r := v.attachRequest()
			r.NodeId = c.SecondNodeID
			c.code(c.attachError(r), codes.OK)
		}},
		row{rpc: rpc, name: "refuses more volumes than the node may have", clause: "the most volumes are attached to the node: RESOURCE_EXHAUSTED", needs: needs, run: func(c *check) {
			info, err := c.node.NodeGetInfo(c.ctx, &csi.NodeGetInfoRequest{})
			c.ok(err)
			most := info.GetMaxVolumesPerNode()
			if most <= 0 || most > attachMost {
				c.Skipf("max_volumes_per_node is %d: this row wants a limit of at most %d", most, attachMost)
			}
			for i := range most {
				c.volume(string(rune('a' + i))).attach()
			}
			c.code(c.attachError(c.volume("last").attachRequest()), codes.ResourceExhausted)
		}},
	)
}

// secondNode skips the row if the target has no second node.
func (c *check) secondNode() {
	c.Helper()
	if c.SecondNodeID == "" {
		c.Skipf("no second node is known: set SecondNodeID")
	}
}

func controllerUnpublishRows() []row {
	const rpc = "ControllerUnpublishVolume"
	needs := []need{creates, attaches}
	detach := func(c *check, volumeID, nodeID string) error {
		_, err := c.controller.ControllerUnpublishVolume(c.ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volumeID, NodeId: nodeID})
		return err
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a volume", clause: missingField, needs: needs, run: func(c *check) {
			c.code(detach(c, "", c.volume("v").node()), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "answers OK for a volume that is not attached", clause: "the volume is not attached to the node: OK", needs: needs, run: func(c *check) {
			v := c.volume("v")
			c.code(detach(c, v.GetVolumeId(), v.node()), codes.OK)
		}},
		{rpc: rpc, name: "answers OK a second time", clause: "the volume is not attached to the node: OK", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			v.detach()
			c.code(detach(c, v.GetVolumeId(), v.node()), codes.OK)
		}},
		{rpc: rpc, name: "answers OK for a volume that does not exist", clause: "the volume is unknown and safely detached: OK", level: Should, needs: needs, run: func(c *check) {
			c.code(detach(c, c.noID(), c.volume("v").node()), codes.OK)
		}},
		{rpc: rpc, name: "answers OK for a node that does not exist", clause: "the node is unknown and the volume safely detached: OK", level: Should, needs: needs, run: func(c *check) {
			c.code(detach(c, c.volume("v").GetVolumeId(), "conformance-nowhere"), codes.OK)
		}},
		{rpc: rpc, name: "unpublishes from every node without a node id", clause: "no node_id: the volume is unpublished from all nodes", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			c.code(detach(c, v.GetVolumeId(), ""), codes.OK)
			// Only a volume that is detached can be attached otherwise.
			c.need(attachesReadOnly)
			r := proto.CloneOf(v.attachRequest())
			r.Readonly = true
			c.code(c.attachError(r), codes.OK)
		}},
	}
}
