package conformance

import (
	"context"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// volume is a volume that a row has made, with what an orchestrator knows of it.
type volume struct {
	*csi.Volume
	c          *check
	request    *csi.CreateVolumeRequest
	capability *csi.VolumeCapability
	nodeID     string
	// publishContext is what ControllerPublishVolume answered.
	publishContext map[string]string
	staging        string
	target         string
}

// createRequest is a request for a volume of the target's kind, accessible from
// the node.
func (c *check) createRequest(what string) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name: c.name(what), CapacityRange: &csi.CapacityRange{RequiredBytes: c.volumeBytes()},
		VolumeCapabilities: []*csi.VolumeCapability{c.capability(singleWriter)},
		Parameters:         maps.Clone(c.Parameters),
	}
	if c.has[modifies] {
		r.MutableParameters = maps.Clone(c.MutableParameters)
	}
	if c.has[hasTopology] {
		if here := c.here(); here != nil {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{here}, Preferred: []*csi.Topology{here}}
		}
	}
	return r
}

// here is the topology of the node; nil where it has none.
func (c *check) here() *csi.Topology {
	info, err := c.node.NodeGetInfo(c.ctx, &csi.NodeGetInfoRequest{})
	if err != nil || len(info.GetAccessibleTopology().GetSegments()) == 0 {
		return nil
	}
	return info.GetAccessibleTopology()
}

// create calls CreateVolume. Whatever comes of it, the row deletes it again.
func (c *check) create(r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	resp, err := c.controller.CreateVolume(c.ctx, r)
	switch {
	case err == nil:
		c.deleteLater(resp.GetVolume().GetVolumeId())
	case unclear(err):
		c.undoLater("volume "+r.GetName(), func(ctx context.Context) error {
			resp, err := c.controller.CreateVolume(ctx, r)
			if err != nil {
				return unlessClear(err) // a clear answer says that there is none
			}
			id := resp.GetVolume().GetVolumeId()
			if _, err := c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				return fmt.Errorf("its id is %s: %w", id, err)
			}
			return nil
		})
	}
	return resp, err
}

// createError is create for rows that want an error.
func (c *check) createError(r *csi.CreateVolumeRequest) error {
	_, err := c.create(r)
	return err
}

func (c *check) deleteLater(volumeID string) {
	c.undoLater("volume "+volumeID, func(ctx context.Context) error {
		_, err := c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volumeID})
		return err
	})
}

// volume makes a volume of the target's kind, or ends the row.
func (c *check) volume(what string, edits ...func(*csi.CreateVolumeRequest)) *volume {
	c.Helper()
	c.need(creates)
	r := c.createRequest(what)
	for _, edit := range edits {
		edit(r)
	}
	resp, err := c.create(r)
	c.ok(err)
	if resp.GetVolume().GetVolumeId() == "" {
		c.fatalf("want a volume with an id, got %v", resp)
	}
	return &volume{Volume: resp.GetVolume(), c: c, request: r, capability: r.GetVolumeCapabilities()[0]}
}

// with makes a volume for a capability, or skips the row if the driver has no
// such volumes.
func (c *check) with(what string, capability *csi.VolumeCapability) *volume {
	c.Helper()
	c.need(creates)
	r := c.createRequest(what)
	r.VolumeCapabilities = []*csi.VolumeCapability{capability}
	resp, err := c.create(r)
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		c.Skipf("the driver makes no volumes for %s: %s", access(capability), describe(err))
	}
	c.ok(err)
	return &volume{Volume: resp.GetVolume(), c: c, request: r, capability: capability}
}

func access(v *csi.VolumeCapability) string {
	if v.GetBlock() != nil {
		return "block access, " + v.GetAccessMode().GetMode().String()
	}
	return "file system access, " + v.GetAccessMode().GetMode().String()
}

// delete deletes the volume.
func (v *volume) delete() {
	v.c.Helper()
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) error {
		_, err := v.c.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
		return err
	}))
	v.c.undone("volume " + v.GetVolumeId())
}

// node is the node's id.
func (v *volume) node() string {
	v.c.Helper()
	if v.nodeID == "" {
		info, err := v.c.node.NodeGetInfo(v.c.ctx, &csi.NodeGetInfoRequest{})
		v.c.ok(err)
		v.nodeID = info.GetNodeId()
	}
	return v.nodeID
}

func (v *volume) attachRequest() *csi.ControllerPublishVolumeRequest {
	v.c.Helper()
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: v.node(), VolumeCapability: v.capability, VolumeContext: v.GetVolumeContext(),
	}
}

// publishController calls ControllerPublishVolume. Whatever comes of it, the row
// undoes it.
func (c *check) publishController(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	resp, err := c.controller.ControllerPublishVolume(ctx, r)
	if unclear(err) {
		c.undoLater("attachment of "+r.GetVolumeId()+" to "+r.GetNodeId(), func(ctx context.Context) error {
			_, err := c.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), NodeId: r.GetNodeId()})
			return err
		})
	}
	return resp, err
}

// attach publishes the volume to the node, where the driver does that in a call
// of its own.
func (v *volume) attach() {
	v.c.Helper()
	if !v.c.has[attaches] {
		return
	}
	r := v.attachRequest()
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) error {
		resp, err := v.c.publishController(ctx, r)
		v.publishContext = resp.GetPublishContext()
		return err
	}))
}

func (v *volume) detach() {
	v.c.Helper()
	if !v.c.has[attaches] {
		return
	}
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) error {
		_, err := v.c.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: v.node()})
		return err
	}))
	v.c.undone("attachment of " + v.GetVolumeId() + " to " + v.node())
}
