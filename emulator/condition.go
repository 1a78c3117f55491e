package emulator

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/array"
)

// Until CSI 1.12 three replies carried a VolumeCondition, and two capabilities
// said so. 1.13 removed them and reserved their numbers for good, so that the
// generated code has no names for them; orchestrators of before still ask. The
// bytes go into the replies as unknown fields, which is what a reply of a newer
// sender looks like to them (Profile.VolumeCondition).
const (
	// conditionField is volume_condition in NodeGetVolumeStatsResponse and in
	// both messages VolumeStatus.
	conditionField    = 2
	conditionAbnormal = 1
	conditionMessage  = 2

	controllerVolumeCondition csi.ControllerServiceCapability_RPC_Type = 11
	nodeVolumeCondition       csi.NodeServiceCapability_RPC_Type       = 4
)

// addCondition adds the condition of a volume to the status of a controller's
// reply, where older orchestrators are served.
func (s *controllerServer) addCondition(ctx context.Context, m proto.Message, v *array.Volume) error {
	if !s.profile.VolumeCondition {
		return nil
	}
	conditions, err := s.array.Health(ctx, v)
	if err != nil {
		return err
	}
	setCondition(m, conditions)
	return nil
}

// setCondition gives a message the VolumeCondition that stands for conditions.
func setCondition(m proto.Message, conditions []backends.Condition) {
	var condition []byte
	message := "the volume is healthy"
	if len(conditions) > 0 {
		condition = protowire.AppendTag(condition, conditionAbnormal, protowire.VarintType)
		condition = protowire.AppendVarint(condition, protowire.EncodeBool(true))
		message = describe(conditions)
	}
	condition = protowire.AppendTag(condition, conditionMessage, protowire.BytesType)
	condition = protowire.AppendString(condition, message)

	fields := protowire.AppendTag(nil, conditionField, protowire.BytesType)
	fields = protowire.AppendBytes(fields, condition)
	r := m.ProtoReflect()
	r.SetUnknown(append(r.GetUnknown(), fields...))
}
