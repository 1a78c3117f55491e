package conformance

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// need is a capability of the plugin, the controller, the group controller or
// the node: a value of one of their enums.
type need fmt.Stringer

// The capabilities by short names.
const (
	hasController    = csi.PluginCapability_Service_CONTROLLER_SERVICE
	hasTopology      = csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS
	hasGroups        = csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
	hasMetadata      = csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE
	hasSnapTopology  = csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS
	expandsOnline    = csi.PluginCapability_VolumeExpansion_ONLINE
	expandsOffline   = csi.PluginCapability_VolumeExpansion_OFFLINE
	creates          = csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME
	attaches         = csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
	lists            = csi.ControllerServiceCapability_RPC_LIST_VOLUMES
	tellsCapacity    = csi.ControllerServiceCapability_RPC_GET_CAPACITY
	snapshots        = csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT
	listsSnapshots   = csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS
	clones           = csi.ControllerServiceCapability_RPC_CLONE_VOLUME
	attachesReadOnly = csi.ControllerServiceCapability_RPC_PUBLISH_READONLY
	expands          = csi.ControllerServiceCapability_RPC_EXPAND_VOLUME
	listsNodes       = csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES
	getsVolume       = csi.ControllerServiceCapability_RPC_GET_VOLUME
	multiWriter      = csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
	modifies         = csi.ControllerServiceCapability_RPC_MODIFY_VOLUME
	getsSnapshot     = csi.ControllerServiceCapability_RPC_GET_SNAPSHOT
	getsHealth       = csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH
	listsHealth      = csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH
	groupSnapshots   = csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
	stages           = csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	tellsStats       = csi.NodeServiceCapability_RPC_GET_VOLUME_STATS
	nodeExpands      = csi.NodeServiceCapability_RPC_EXPAND_VOLUME
	nodeMultiWriter  = csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
	nodeMountGroup   = csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	nodeHealth       = csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH
	storageHealth    = csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH
)

// Access modes by short names.
const (
	singleWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	multiNode     = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	singleReader  = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	unknownFSType = "no-such-fs"
)

// kind names the enum of a capability.
func kind(n need) string {
	switch n.(type) {
	case csi.ControllerServiceCapability_RPC_Type:
		return "controller capability"
	case csi.NodeServiceCapability_RPC_Type:
		return "node capability"
	case csi.GroupControllerServiceCapability_RPC_Type:
		return "group controller capability"
	}
	return "plugin capability"
}

// need skips the row if the driver lacks a capability.
func (c *check) need(needs ...need) {
	c.Helper()
	for _, n := range needs {
		if !c.has[n] {
			c.Skipf("the driver does not have the %s %s", kind(n), n)
		}
	}
}

// lacks skips the row if the driver has a capability.
func (c *check) lacks(needs ...need) {
	c.Helper()
	for _, n := range needs {
		if c.has[n] {
			c.Skipf("the driver has the %s %s", kind(n), n)
		}
	}
}

// ask asks the driver for all its capabilities. A service that is not served has
// none.
func (c *check) ask() {
	c.Helper()
	c.has = map[need]bool{}
	plugin, err := c.identity.GetPluginCapabilities(c.ctx, &csi.GetPluginCapabilitiesRequest{})
	c.ok(err)
	for _, p := range plugin.GetCapabilities() {
		if s := p.GetService(); s != nil {
			c.has[s.GetType()] = true
		}
		if e := p.GetVolumeExpansion(); e != nil {
			c.has[e.GetType()] = true
		}
	}
	controller, err := c.controller.ControllerGetCapabilities(c.ctx, &csi.ControllerGetCapabilitiesRequest{})
	c.answered(err)
	for _, p := range controller.GetCapabilities() {
		c.has[p.GetRpc().GetType()] = true
	}
	group, err := c.group.GroupControllerGetCapabilities(c.ctx, &csi.GroupControllerGetCapabilitiesRequest{})
	c.answered(err)
	for _, p := range group.GetCapabilities() {
		c.has[p.GetRpc().GetType()] = true
	}
	node, err := c.node.NodeGetCapabilities(c.ctx, &csi.NodeGetCapabilitiesRequest{})
	c.answered(err)
	for _, p := range node.GetCapabilities() {
		c.has[p.GetRpc().GetType()] = true
	}
}

// answered ends the row if a call failed for another reason than that its
// service is not served.
func (c *check) answered(err error) {
	c.Helper()
	if status.Code(err) != codes.Unimplemented {
		c.ok(err)
	}
}
