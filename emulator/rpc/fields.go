package rpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// needs are the fields that a request must carry. A field is missing when it is
// empty: REQUIRED lists and maps have at least one element ("Field
// Requirements"). Scalars whose zero is meaningful (readonly, starting_offset)
// are not listed.
type needs struct {
	// must are refused with INVALID_ARGUMENT when they are missing.
	must []string
	// should are REQUIRED too, but callers forget them and lose nothing: a
	// finding, refused only by Options.Strict. The comment says who forgets.
	should []string
	// capabilities is how strictly volume capabilities are read.
	capabilities strictness
}

// strictness is how strictly a method reads volume capabilities.
type strictness int

const (
	// The zero value is for capabilities that the volume is to serve.
	_ strictness = iota
	// asked means that the method itself answers that an access mode is not
	// supported, also one that a later version of CSI added.
	asked
	// forgiven makes findings of all faults.
	forgiven
)

func must(fields ...string) needs { return needs{must: fields} }

// required lists the 36 methods of CSI 1.13 with their REQUIRED fields.
var required = map[string]needs{
	"GetPluginInfo":         {},
	"GetPluginCapabilities": {},
	"Probe":                 {},

	"CreateVolume":               must("name", "volume_capabilities"),
	"DeleteVolume":               must("volume_id"),
	"ControllerPublishVolume":    must("volume_id", "node_id", "volume_capability"),
	"ControllerUnpublishVolume":  must("volume_id"), // without node_id: from all nodes
	"ValidateVolumeCapabilities": {must: []string{"volume_id", "volume_capabilities"}, capabilities: asked},
	"ListVolumes":                {},
	"ControllerListVolumeHealth": {},
	"ControllerGetVolumeHealth":  must("volume_id"),
	// external-provisioner always asks with access mode UNKNOWN.
	"GetCapacity":               {capabilities: forgiven},
	"ControllerGetCapabilities": {},
	"CreateSnapshot":            must("source_volume_id", "name"),
	"DeleteSnapshot":            must("snapshot_id"),
	"ListSnapshots":             {},
	"GetSnapshot":               must("snapshot_id"),
	"ControllerExpandVolume":    must("volume_id", "capacity_range"),
	"ControllerGetVolume":       must("volume_id"),
	"ControllerModifyVolume":    must("volume_id", "mutable_parameters"),

	"GroupControllerGetCapabilities": {},
	"CreateVolumeGroupSnapshot":      must("name", "source_volume_ids"),
	// csi-test deletes and gets groups by their id alone.
	"DeleteVolumeGroupSnapshot": {must: []string{"group_snapshot_id"}, should: []string{"snapshot_ids"}},
	"GetVolumeGroupSnapshot":    {must: []string{"group_snapshot_id"}, should: []string{"snapshot_ids"}},

	"GetMetadataAllocated": must("snapshot_id"),
	"GetMetadataDelta":     must("base_snapshot_id", "target_snapshot_id"),

	"NodeStageVolume":   must("volume_id", "staging_target_path", "volume_capability"),
	"NodeUnstageVolume": must("volume_id", "staging_target_path"),
	// A missing staging_target_path is FAILED_PRECONDITION where there is
	// staging, which the node service knows.
	"NodePublishVolume":    must("volume_id", "target_path", "volume_capability"),
	"NodeUnpublishVolume":  must("volume_id", "target_path"),
	"NodeGetVolumeStats":   must("volume_id", "volume_path"),
	"NodeGetVolumeHealth":  must("volume_id"),
	"NodeGetStorageHealth": {},
	"NodeExpandVolume":     must("volume_id", "volume_path"),
	"NodeGetCapabilities":  {},
	"NodeGetInfo":          {},
}

// present checks the required fields of a request.
func (p *method) present(in *inspection, request protoreflect.Message) error {
	for _, field := range p.must {
		if !request.Has(field) {
			return status.Errorf(codes.InvalidArgument, "%s: %s is required and missing", p.name, field.Name())
		}
	}
	for _, field := range p.should {
		if !request.Has(field) {
			in.at(string(field.Name()))
			in.forgive("is required and missing")
			in.back()
		}
	}
	return in.err
}
