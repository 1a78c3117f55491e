package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// unimplementedRows call, with a request in good form, each RPC whose capability
// the driver does not have.
func unimplementedRows() []row {
	type optional struct {
		rpc   string
		needs []need
		call  func(*check) error
	}
	var rows []row
	for _, o := range []optional{
		{"CreateVolume", []need{creates}, func(c *check) error {
			return c.createError(c.createRequest("v"))
		}},
		{"DeleteVolume", []need{creates}, func(c *check) error {
			_, err := c.controller.DeleteVolume(c.ctx, &csi.DeleteVolumeRequest{VolumeId: c.noID()})
			return err
		}},
		{"ControllerPublishVolume", []need{attaches}, func(c *check) error {
			_, err := c.controller.ControllerPublishVolume(c.ctx, &csi.ControllerPublishVolumeRequest{VolumeId: c.noID(), NodeId: c.noID(), VolumeCapability: c.capability(singleWriter)})
			return err
		}},
		{"ControllerUnpublishVolume", []need{attaches}, func(c *check) error {
			_, err := c.controller.ControllerUnpublishVolume(c.ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: c.noID(), NodeId: c.noID()})
			return err
		}},
		{"ListVolumes", []need{lists}, func(c *check) error {
			_, err := c.controller.ListVolumes(c.ctx, &csi.ListVolumesRequest{})
			return err
		}},
		{"ControllerListVolumeHealth", []need{listsHealth}, func(c *check) error {
			_, err := c.controller.ControllerListVolumeHealth(c.ctx, &csi.ControllerListVolumeHealthRequest{})
			return err
		}},
		{"ControllerGetVolumeHealth", []need{getsHealth, listsHealth}, func(c *check) error {
			_, err := c.controller.ControllerGetVolumeHealth(c.ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: c.noID()})
			return err
		}},
		{"ControllerGetVolume", []need{getsVolume}, func(c *check) error {
			_, err := c.controller.ControllerGetVolume(c.ctx, &csi.ControllerGetVolumeRequest{VolumeId: c.noID()})
			return err
		}},
		{"ControllerModifyVolume", []need{modifies}, func(c *check) error {
			_, err := c.controller.ControllerModifyVolume(c.ctx, &csi.ControllerModifyVolumeRequest{VolumeId: c.noID(), MutableParameters: map[string]string{"key": "value"}})
			return err
		}},
		{"GetCapacity", []need{tellsCapacity}, func(c *check) error {
			_, err := c.controller.GetCapacity(c.ctx, &csi.GetCapacityRequest{})
			return err
		}},
		{"CreateSnapshot", []need{snapshots}, func(c *check) error {
			_, err := c.controller.CreateSnapshot(c.ctx, &csi.CreateSnapshotRequest{Name: c.name("s"), SourceVolumeId: c.noID()})
			return err
		}},
		{"DeleteSnapshot", []need{snapshots}, func(c *check) error {
			_, err := c.controller.DeleteSnapshot(c.ctx, &csi.DeleteSnapshotRequest{SnapshotId: c.noID()})
			return err
		}},
		{"ListSnapshots", []need{listsSnapshots}, func(c *check) error {
			_, err := c.controller.ListSnapshots(c.ctx, &csi.ListSnapshotsRequest{})
			return err
		}},
		{"GetSnapshot", []need{getsSnapshot}, func(c *check) error {
			_, err := c.controller.GetSnapshot(c.ctx, &csi.GetSnapshotRequest{SnapshotId: c.noID()})
			return err
		}},
		{"ControllerExpandVolume", []need{expands}, func(c *check) error {
			_, err := c.controller.ControllerExpandVolume(c.ctx, &csi.ControllerExpandVolumeRequest{VolumeId: c.noID(), CapacityRange: &csi.CapacityRange{RequiredBytes: c.volumeBytes()}})
			return err
		}},
		{"CreateVolumeGroupSnapshot", []need{groupSnapshots}, func(c *check) error {
			_, err := c.group.CreateVolumeGroupSnapshot(c.ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: c.name("g"), SourceVolumeIds: []string{c.noID()}})
			return err
		}},
		{"DeleteVolumeGroupSnapshot", []need{groupSnapshots}, func(c *check) error {
			_, err := c.group.DeleteVolumeGroupSnapshot(c.ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: c.noID(), SnapshotIds: []string{c.noID()}})
			return err
		}},
		{"GetVolumeGroupSnapshot", []need{groupSnapshots}, func(c *check) error {
			_, err := c.group.GetVolumeGroupSnapshot(c.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: c.noID(), SnapshotIds: []string{c.noID()}})
			return err
		}},
		{"GetMetadataAllocated", []need{hasMetadata}, func(c *check) error {
			_, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: c.noID()})
			return err
		}},
		{"GetMetadataDelta", []need{hasMetadata}, func(c *check) error {
			_, err := c.delta(&csi.GetMetadataDeltaRequest{BaseSnapshotId: c.noID(), TargetSnapshotId: c.noID()})
			return err
		}},
		{"NodeStageVolume", []need{stages}, func(c *check) error {
			return c.nodeStage(&csi.NodeStageVolumeRequest{VolumeId: c.noID(), StagingTargetPath: c.path("staging", true), VolumeCapability: c.capability(singleWriter)})
		}},
		{"NodeUnstageVolume", []need{stages}, func(c *check) error {
			_, err := c.node.NodeUnstageVolume(c.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: c.noID(), StagingTargetPath: c.path("staging", true)})
			return err
		}},
		{"NodeGetVolumeStats", []need{tellsStats}, func(c *check) error {
			_, err := c.node.NodeGetVolumeStats(c.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: c.noID(), VolumePath: c.path("target", false)})
			return err
		}},
		{"NodeGetVolumeHealth", []need{nodeHealth}, func(c *check) error {
			_, err := c.node.NodeGetVolumeHealth(c.ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: c.noID()})
			return err
		}},
		{"NodeGetStorageHealth", []need{storageHealth}, func(c *check) error {
			_, err := c.node.NodeGetStorageHealth(c.ctx, &csi.NodeGetStorageHealthRequest{})
			return err
		}},
		{"NodeExpandVolume", []need{nodeExpands}, func(c *check) error {
			_, err := c.node.NodeExpandVolume(c.ctx, &csi.NodeExpandVolumeRequest{VolumeId: c.noID(), VolumePath: c.path("target", false)})
			return err
		}},
	} {
		rows = append(rows, row{
			rpc: o.rpc, name: "is not implemented without its capability", level: Should,
			clause: "an RPC that is not implemented, or disabled: UNIMPLEMENTED",
			run: func(c *check) {
				c.lacks(o.needs...)
				c.code(o.call(c), codes.Unimplemented)
			},
		})
	}
	return rows
}
