package rpc_test

import (
	"context"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// requiredFields is what the proto file marks as REQUIRED, but for scalars whose
// zero is a value (readonly, starting_offset).
var requiredFields = map[string][]string{
	"CreateVolume":               {"name", "volume_capabilities"},
	"DeleteVolume":               {"volume_id"},
	"ControllerPublishVolume":    {"volume_id", "node_id", "volume_capability"},
	"ControllerUnpublishVolume":  {"volume_id"},
	"ValidateVolumeCapabilities": {"volume_id", "volume_capabilities"},
	"ControllerGetVolumeHealth":  {"volume_id"},
	"CreateSnapshot":             {"source_volume_id", "name"},
	"DeleteSnapshot":             {"snapshot_id"},
	"GetSnapshot":                {"snapshot_id"},
	"ControllerExpandVolume":     {"volume_id", "capacity_range"},
	"ControllerGetVolume":        {"volume_id"},
	"ControllerModifyVolume":     {"volume_id", "mutable_parameters"},
	"CreateVolumeGroupSnapshot":  {"name", "source_volume_ids"},
	"DeleteVolumeGroupSnapshot":  {"group_snapshot_id", "snapshot_ids"},
	"GetVolumeGroupSnapshot":     {"group_snapshot_id", "snapshot_ids"},
	"GetMetadataAllocated":       {"snapshot_id"},
	"GetMetadataDelta":           {"base_snapshot_id", "target_snapshot_id"},
	"NodeStageVolume":            {"volume_id", "staging_target_path", "volume_capability"},
	"NodeUnstageVolume":          {"volume_id", "staging_target_path"},
	"NodePublishVolume":          {"volume_id", "target_path", "volume_capability"},
	"NodeUnpublishVolume":        {"volume_id", "target_path"},
	"NodeGetVolumeStats":         {"volume_id", "volume_path"},
	"NodeGetVolumeHealth":        {"volume_id"},
	"NodeExpandVolume":           {"volume_id", "volume_path"},
}

func TestEveryMethodKnowsItsRequiredFields(t *testing.T) {
	t.Parallel()
	require.Len(t, rpc.Methods(), 36)
	conn := serve(t, rpc.Options{Strict: true})
	seen := map[string]bool{}
	for _, request := range complete() {
		full, _ := methodOf(request)
		seen[full] = true
		err := call(t.Context(), conn, request)
		require.Equal(t, codes.Unimplemented, status.Code(err), "%s with all its fields: %v", full, err)

		fields := request.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			less := proto.Clone(request)
			less.ProtoReflect().Clear(field)
			err := call(t.Context(), conn, less)
			if slices.Contains(requiredFields[base(full)], string(field.Name())) {
				require.Equal(t, codes.InvalidArgument, status.Code(err), "%s without %s: %v", full, field.Name(), err)
				require.Contains(t, status.Convert(err).Message(), string(field.Name()))
			} else {
				require.Equal(t, codes.Unimplemented, status.Code(err), "%s without %s: %v", full, field.Name(), err)
			}
		}
	}
	require.Len(t, seen, 36)
}

// base returns the method without its service.
func base(full string) string { return path.Base(full) }

func TestFieldsThatCallersForgetAreFindings(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var found []rpc.Finding
	conn := serve(t, rpc.Options{Finding: func(_ context.Context, f rpc.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}})
	for _, request := range complete() {
		field := request.ProtoReflect().Descriptor().Fields().ByName("snapshot_ids")
		if field == nil {
			continue
		}
		request.ProtoReflect().Clear(field)
		require.Equal(t, codes.Unimplemented, status.Code(call(t.Context(), conn, request)))
	}
	require.Equal(t, []rpc.Finding{
		{Method: "/csi.v1.GroupController/DeleteVolumeGroupSnapshot", Field: "snapshot_ids", Text: "is required and missing"},
		{Method: "/csi.v1.GroupController/GetVolumeGroupSnapshot", Field: "snapshot_ids", Text: "is required and missing"},
	}, found)
}
