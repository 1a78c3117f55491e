package emulator

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
)

// allows says whether the driver knows a volume capability at all.
func (p *Profile) allows(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	switch {
	case access.SingleNodeMultiWriter(mode) &&
		!p.controller(csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER) &&
		!p.node(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER):
		return fmt.Errorf("access mode %s needs a driver with SINGLE_NODE_MULTI_WRITER: %w", mode, backends.ErrInvalid)
	case access.MultiNode(mode) && p.NodeTopologyKey != "":
		return fmt.Errorf("access mode %s: this driver's volumes live on one node: %w", mode, backends.ErrInvalid)
	}
	return nil
}

// enabled says whether an RPC is served: the capability that it belongs to is
// advertised. RPCs that are not named here belong to none.
func (p *Profile) enabled(fullMethod string) bool {
	switch fullMethod {
	case csi.Controller_CreateVolume_FullMethodName, csi.Controller_DeleteVolume_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
	case csi.Controller_ControllerPublishVolume_FullMethodName, csi.Controller_ControllerUnpublishVolume_FullMethodName:
		return p.attaches()
	case csi.Controller_ListVolumes_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
	case csi.Controller_GetCapacity_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	case csi.Controller_CreateSnapshot_FullMethodName, csi.Controller_DeleteSnapshot_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	case csi.Controller_ListSnapshots_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	case csi.Controller_GetSnapshot_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_GET_SNAPSHOT)
	case csi.Controller_ControllerGetVolume_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_GET_VOLUME)
	case csi.Controller_ControllerModifyVolume_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	case csi.Controller_ControllerListVolumeHealth_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	case csi.Controller_ControllerGetVolumeHealth_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH) ||
			p.controller(csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	case csi.GroupController_CreateVolumeGroupSnapshot_FullMethodName, csi.GroupController_DeleteVolumeGroupSnapshot_FullMethodName,
		csi.GroupController_GetVolumeGroupSnapshot_FullMethodName:
		return slices.Contains(p.Group, csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT)
	case csi.GroupController_GroupControllerGetCapabilities_FullMethodName:
		return p.plugin(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	case csi.Node_NodeGetVolumeHealth_FullMethodName:
		return p.node(csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
	case csi.Node_NodeGetStorageHealth_FullMethodName:
		return p.node(csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	case csi.Controller_ControllerExpandVolume_FullMethodName:
		return p.controller(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	case csi.SnapshotMetadata_GetMetadataAllocated_FullMethodName, csi.SnapshotMetadata_GetMetadataDelta_FullMethodName:
		return p.plugin(csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE)
	case csi.Node_NodeStageVolume_FullMethodName, csi.Node_NodeUnstageVolume_FullMethodName:
		return p.node(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	case csi.Node_NodeGetVolumeStats_FullMethodName:
		return p.node(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	case csi.Node_NodeExpandVolume_FullMethodName:
		return p.node(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	return true
}
