package conformance

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func getVolumeRows() []row {
	const rpc = "ControllerGetVolume"
	get := func(c *check, id string) (*csi.ControllerGetVolumeResponse, error) {
		return c.controller.ControllerGetVolume(c.ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a volume", clause: missingField, needs: []need{getsVolume}, run: func(c *check) {
			_, err := get(c, "")
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a volume that does not exist", clause: noVolume, needs: []need{getsVolume}, run: func(c *check) {
			_, err := get(c, c.noID())
			c.code(err, codes.NotFound)
		}},
		{rpc: rpc, name: "refuses a volume that was deleted", clause: noVolume, needs: []need{creates, getsVolume}, run: func(c *check) {
			v := c.volume("v")
			v.delete()
			_, err := get(c, v.GetVolumeId())
			c.code(err, codes.NotFound)
		}},
		{rpc: rpc, name: "answers a volume as it was made", clause: "the answer should contain the current information", level: Should, needs: []need{creates, getsVolume}, run: func(c *check) {
			v := c.volume("v")
			resp, err := get(c, v.GetVolumeId())
			c.ok(err)
			c.limits(resp)
			if !proto.Equal(resp.GetVolume(), v.Volume) {
				c.Errorf("want %v, got %v", v.Volume, resp.GetVolume())
			}
		}},
		{rpc: rpc, name: "answers a volume with a status", clause: "volume and status are required; a volume always has the same volume_context", needs: []need{creates, getsVolume}, run: func(c *check) {
			v := c.volume("v")
			resp, err := get(c, v.GetVolumeId())
			c.ok(err)
			c.sameVolume(v, resp.GetVolume())
			if resp.GetStatus() == nil {
				c.Errorf("want a status, got none")
			}
		}},
		{rpc: rpc, name: "tells the nodes that a volume is published to", clause: "published_node_ids are the nodes that the volume is published to", needs: []need{creates, getsVolume, listsNodes}, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			resp, err := get(c, v.GetVolumeId())
			c.ok(err)
			if ids := resp.GetStatus().GetPublishedNodeIds(); !slices.Contains(ids, v.node()) {
				c.Errorf("want node %q, got %q", v.node(), ids)
			}
			v.detach()
			resp, err = get(c, v.GetVolumeId())
			c.ok(err)
			if ids := resp.GetStatus().GetPublishedNodeIds(); slices.Contains(ids, v.node()) {
				c.Errorf("want no node after the volume was unpublished, got %q", ids)
			}
		}},
		{rpc: rpc, name: "tells the size of a volume that has grown", clause: "the information is current", needs: []need{creates, getsVolume, expands}, run: func(c *check) {
			v := c.volume("v")
			size := v.expand(2 * c.volumeBytes()).GetCapacityBytes()
			resp, err := get(c, v.GetVolumeId())
			c.ok(err)
			equal(c, "capacity_bytes", size, resp.GetVolume().GetCapacityBytes())
		}},
	}
}
