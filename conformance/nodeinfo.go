package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func nodeInfoRows() []row {
	const rpc = "NodeGetInfo"
	info := func(c *check) *csi.NodeGetInfoResponse {
		c.Helper()
		resp, err := c.node.NodeGetInfo(c.ctx, &csi.NodeGetInfoRequest{})
		if status.Code(err) == codes.Unimplemented && !c.has[attaches] {
			c.Skipf("the driver does not implement NodeGetInfo, which only PUBLISH_UNPUBLISH_VOLUME demands")
		}
		c.ok(err)
		return resp
	}
	return []row{
		{rpc: rpc, name: "answers a node id", clause: "node_id is required, and has at most 256 bytes", run: func(c *check) {
			resp := info(c)
			if resp.GetNodeId() == "" {
				c.Errorf("want a node_id, got none")
			}
			c.limits(resp)
		}},
		{rpc: rpc, name: "answers a node id of at most 128 bytes", clause: "128 bytes are recommended", level: Should, run: func(c *check) {
			if n := len(info(c).GetNodeId()); n > stringLimit {
				c.Errorf("want at most %d bytes, got %d", stringLimit, n)
			}
		}},
		{rpc: rpc, name: "answers the same again", clause: "the call may be made more than once", run: func(c *check) {
			if one, two := info(c), info(c); !proto.Equal(one, two) {
				c.Errorf("want %v again, got %v", one, two)
			}
		}},
		{rpc: rpc, name: "answers a limit that is not negative", clause: "max_volumes_per_node must not be negative", run: func(c *check) {
			if most := info(c).GetMaxVolumesPerNode(); most < 0 {
				c.Errorf("want no negative limit, got %d", most)
			}
		}},
		{rpc: rpc, name: "answers a topology in good form", clause: "keys have an optional prefix, and names and values of at most 63 characters", run: func(c *check) {
			t := info(c).GetAccessibleTopology()
			if t == nil {
				c.Skipf("the node has no topology")
			}
			c.topology(t)
		}},
		{rpc: rpc, name: "answers a topology only with the capability", clause: "accessible_topology needs VOLUME_ACCESSIBILITY_CONSTRAINTS", run: func(c *check) {
			c.lacks(hasTopology)
			if t := info(c).GetAccessibleTopology(); t != nil {
				c.Errorf("want no topology, got %v", t)
			}
		}},
		{rpc: rpc, name: "has one prefix in the topology of nodes and volumes", clause: "all topology keys of a plugin have the same prefix", needs: []need{creates, hasTopology}, run: func(c *check) {
			c.topology(append(c.volume("v").GetAccessibleTopology(), c.hereOrSkip())...)
		}},
	}
}
