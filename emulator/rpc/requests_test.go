package rpc_test

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func capabilities() []*csi.VolumeCapability { return []*csi.VolumeCapability{capability()} }

// complete returns a request of every method with its required fields, and those
// optional ones that callers usually send.
func complete() []proto.Message {
	secrets := map[string]string{"user": "bob"}
	return []proto.Message{
		&csi.GetPluginInfoRequest{},
		&csi.GetPluginCapabilitiesRequest{},
		&csi.ProbeRequest{},

		&csi.CreateVolumeRequest{
			Name: "pvc-1", VolumeCapabilities: capabilities(), Secrets: secrets,
			CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
			Parameters:    map[string]string{"csi.storage.k8s.io/pvc/name": "data"},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "vol-0"},
			}},
			AccessibilityRequirements: &csi.TopologyRequirement{
				Requisite: []*csi.Topology{{Segments: map[string]string{"topology.example.com/zone": "Z1", "rack": "R1"}}},
				Preferred: []*csi.Topology{{Segments: map[string]string{"rack": "R1", "topology.example.com/zone": "Z1"}}},
			},
		},
		&csi.DeleteVolumeRequest{VolumeId: "vol-1", Secrets: secrets},
		&csi.ControllerPublishVolumeRequest{VolumeId: "vol-1", NodeId: "node-1", VolumeCapability: capability()},
		&csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-1"},
		&csi.ValidateVolumeCapabilitiesRequest{VolumeId: "vol-1", VolumeCapabilities: capabilities()},
		&csi.ListVolumesRequest{},
		&csi.ControllerListVolumeHealthRequest{},
		&csi.ControllerGetVolumeHealthRequest{VolumeId: "vol-1"},
		&csi.GetCapacityRequest{},
		&csi.ControllerGetCapabilitiesRequest{},
		&csi.CreateSnapshotRequest{SourceVolumeId: "vol-1", Name: "snap-1"},
		&csi.DeleteSnapshotRequest{SnapshotId: "snap-1"},
		&csi.ListSnapshotsRequest{},
		&csi.GetSnapshotRequest{SnapshotId: "snap-1"},
		&csi.ControllerExpandVolumeRequest{VolumeId: "vol-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}},
		&csi.ControllerGetVolumeRequest{VolumeId: "vol-1"},
		&csi.ControllerModifyVolumeRequest{VolumeId: "vol-1", MutableParameters: map[string]string{"iops": "100"}},

		&csi.GroupControllerGetCapabilitiesRequest{},
		&csi.CreateVolumeGroupSnapshotRequest{Name: "group-1", SourceVolumeIds: []string{"vol-1", "vol-2"}},
		&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "group-1", SnapshotIds: []string{"snap-1"}},
		&csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "group-1", SnapshotIds: []string{"snap-1"}},

		&csi.GetMetadataAllocatedRequest{SnapshotId: "snap-1"},
		&csi.GetMetadataDeltaRequest{BaseSnapshotId: "snap-1", TargetSnapshotId: "snap-2"},

		&csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/staging", VolumeCapability: capability()},
		&csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/staging"},
		&csi.NodePublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/target", VolumeCapability: capability()},
		&csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/target"},
		&csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: "/target"},
		&csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1"},
		&csi.NodeGetStorageHealthRequest{},
		&csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: "/target"},
		&csi.NodeGetCapabilitiesRequest{},
		&csi.NodeGetInfoRequest{},
	}
}
