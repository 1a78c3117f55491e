package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// Numbers of capabilities that were removed from the specification.
const (
	reservedOfController = 11
	reservedOfNode       = 4
)

func capabilityRows() []row {
	const controller, group, node = "ControllerGetCapabilities", "GroupControllerGetCapabilities", "NodeGetCapabilities"
	return []row{
		{rpc: controller, name: "names known capabilities, each once", clause: "a capability has a type, which is not UNKNOWN; 11 is reserved", run: func(c *check) {
			all := c.controllerCapabilities()
			known(c, all)
			for _, one := range all {
				if int32(one.GetRpc().GetType()) == reservedOfController {
					c.Errorf("want no capability %d, which was VOLUME_CONDITION and is reserved", reservedOfController)
				}
			}
		}},
		{rpc: controller, name: "answers the same capabilities again", clause: "capabilities are those of the plugin, not of a moment", run: func(c *check) {
			sameSet(c, "capabilities", c.controllerCapabilities(), c.controllerCapabilities())
		}},
		{rpc: controller, name: "advertises LIST_VOLUMES_PUBLISHED_NODES with PUBLISH_UNPUBLISH_VOLUME", clause: "LIST_VOLUMES_PUBLISHED_NODES must come with PUBLISH_UNPUBLISH_VOLUME", run: func(c *check) {
			c.need(listsNodes)
			c.alsoHas(attaches)
		}},
		{rpc: controller, name: "advertises LIST_VOLUME_HEALTH with GET_VOLUME_HEALTH", clause: "LIST_VOLUME_HEALTH must come with GET_VOLUME_HEALTH", run: func(c *check) {
			c.need(listsHealth)
			c.alsoHas(getsHealth)
		}},
		{rpc: controller, name: "advertises capabilities only with CONTROLLER_SERVICE", clause: "CONTROLLER_SERVICE decides whether the controller's RPCs are called at all", level: Should, run: func(c *check) {
			if len(c.controllerCapabilities()) > 0 {
				c.alsoHas(hasController)
			}
		}},
		{rpc: group, name: "names known capabilities, each once", clause: "a capability has a type, which is not UNKNOWN", run: func(c *check) {
			resp, err := c.group.GroupControllerGetCapabilities(c.ctx, &csi.GroupControllerGetCapabilitiesRequest{})
			c.served(err)
			known(c, resp.GetCapabilities())
		}},
		{rpc: group, name: "advertises group snapshots only with GROUP_CONTROLLER_SERVICE", clause: "GROUP_CONTROLLER_SERVICE decides whether the group controller's RPCs are called at all", level: Should, run: func(c *check) {
			c.need(groupSnapshots)
			c.alsoHas(hasGroups)
		}},
		{rpc: group, name: "comes with GetSnapshot for the members of a group", clause: "a plugin with group snapshots should implement GetSnapshot", level: Should, run: func(c *check) {
			c.need(groupSnapshots)
			c.alsoHas(getsSnapshot)
		}},
		{rpc: node, name: "names known capabilities, each once", clause: "a capability has a type, which is not UNKNOWN; 4 is reserved", run: func(c *check) {
			all := c.nodeCapabilities()
			known(c, all)
			for _, one := range all {
				if int32(one.GetRpc().GetType()) == reservedOfNode {
					c.Errorf("want no capability %d, which was VOLUME_CONDITION and is reserved", reservedOfNode)
				}
			}
		}},
		{rpc: node, name: "answers the same capabilities again", clause: "capabilities are those of the plugin, not of a moment", run: func(c *check) {
			sameSet(c, "capabilities", c.nodeCapabilities(), c.nodeCapabilities())
		}},
	}
}

func (c *check) controllerCapabilities() []*csi.ControllerServiceCapability {
	c.Helper()
	resp, err := c.controller.ControllerGetCapabilities(c.ctx, &csi.ControllerGetCapabilitiesRequest{})
	c.served(err)
	return resp.GetCapabilities()
}

func (c *check) nodeCapabilities() []*csi.NodeServiceCapability {
	c.Helper()
	resp, err := c.node.NodeGetCapabilities(c.ctx, &csi.NodeGetCapabilitiesRequest{})
	c.served(err)
	return resp.GetCapabilities()
}

func (c *check) alsoHas(n need) {
	c.Helper()
	if !c.has[n] {
		c.Errorf("want the %s %s with it, got none", kind(n), n)
	}
}

// known fails the row for capabilities that are named twice or have no type.
func known[M proto.Message](c *check, all []M) {
	c.Helper()
	for i, one := range all {
		for _, other := range all[:i] {
			if proto.Equal(one, other) {
				c.Errorf("want each capability once, got %v twice", one)
			}
		}
		if typeOf(one) <= 0 {
			c.Errorf("want a capability with a type, got %v", one)
		}
	}
}

// typeOf is the number of a capability; it may be of a later version of the
// specification.
func typeOf(capability proto.Message) int32 {
	switch m := capability.(type) {
	case *csi.PluginCapability:
		return int32(m.GetService().GetType()) + int32(m.GetVolumeExpansion().GetType())
	case *csi.ControllerServiceCapability:
		return int32(m.GetRpc().GetType())
	case *csi.GroupControllerServiceCapability:
		return int32(m.GetRpc().GetType())
	case *csi.NodeServiceCapability:
		return int32(m.GetRpc().GetType())
	}
	return 0
}
