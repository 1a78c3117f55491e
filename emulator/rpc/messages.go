package rpc

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// wholes are the checks of messages whose fields depend on each other.
var wholes = map[protoreflect.FullName]rule{
	"csi.v1.VolumeCapability": whole(checkCapability),
	"csi.v1.CapacityRange":    whole(checkRange),
	"csi.v1.VolumeContentSource": whole(func(in *inspection, m *csi.VolumeContentSource) {
		if m.GetType() == nil {
			in.object("names neither a snapshot nor a volume")
		}
	}),
	"csi.v1.VolumeContentSource.SnapshotSource": whole(func(in *inspection, m *csi.VolumeContentSource_SnapshotSource) {
		if m.GetSnapshotId() == "" {
			in.object("lacks snapshot_id")
		}
	}),
	"csi.v1.VolumeContentSource.VolumeSource": whole(func(in *inspection, m *csi.VolumeContentSource_VolumeSource) {
		if m.GetVolumeId() == "" {
			in.object("lacks volume_id")
		}
	}),
	"csi.v1.TopologyRequirement": whole(checkRequirement),
}

// whole makes a rule of a check that knows its message.
func whole[M protoreflect.ProtoMessage](check func(*inspection, M)) rule {
	return func(in *inspection, v protoreflect.Value) {
		// Other types, as dynamic messages, never come from the services'
		// handlers.
		if m, ok := v.Message().Interface().(M); ok {
			check(in, m)
		}
	}
}

func checkCapability(in *inspection, c *csi.VolumeCapability) {
	mode := c.GetAccessMode().GetMode()
	_, known := csi.VolumeCapability_AccessMode_Mode_name[int32(mode)]
	object := in.object
	if in.method.capabilities == forgiven {
		object = in.forgive
	}
	switch {
	case c.GetAccessType() == nil:
		object("needs an access_type: block or mount")
	case mode == csi.VolumeCapability_AccessMode_UNKNOWN:
		object("needs an access_mode other than UNKNOWN")
	case !known && in.method.capabilities != asked:
		object(fmt.Sprintf("has access_mode %d, which CSI 1.13 does not know", mode))
	}
}

func checkRange(in *inspection, r *csi.CapacityRange) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required == 0 && limit == 0:
		in.object("needs required_bytes or limit_bytes")
	case required > 0 && limit > 0 && limit < required:
		in.object(fmt.Sprintf("has limit_bytes %d, less than required_bytes %d", limit, required))
	}
}

func checkRequirement(in *inspection, r *csi.TopologyRequirement) {
	if len(r.GetRequisite()) == 0 && len(r.GetPreferred()) == 0 {
		in.object("needs requisite or preferred topologies")
		return
	}
	if len(r.GetRequisite()) == 0 || len(r.GetPreferred()) == 0 {
		return
	}
	// A cluster may have thousands of nodes, each a topology.
	requisite := make(map[string]bool, len(r.GetRequisite()))
	for _, t := range r.GetRequisite() {
		requisite[canonical(t)] = true
	}
	for i, t := range r.GetPreferred() {
		if !requisite[canonical(t)] {
			in.object(fmt.Sprintf("has preferred[%d], which is not among the requisite topologies", i))
			return
		}
	}
}

// canonical returns equal strings for equal topologies only.
func canonical(t *csi.Topology) string {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(t.GetSegments())) {
		b = strconv.AppendQuote(b, key)
		b = strconv.AppendQuote(b, t.GetSegments()[key])
	}
	return string(b)
}

// checkSegments checks the form of a topology. Its 4 KiB are a limit like any
// other map's.
func checkSegments(in *inspection, v protoreflect.Value) {
	checkMap(in, v)
	seen := make(map[string]string, v.Map().Len())
	v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		key := k.String()
		in.object(objectionToTopologyKey(key))
		in.object(objectionToTopologyValue(key, v.String()))
		folded := strings.ToLower(key)
		if other, twice := seen[folded]; twice {
			in.object(fmt.Sprintf("has keys that differ by case only: %q and %q", min(key, other), max(key, other)))
		}
		seen[folded] = key
		return in.err == nil
	})
}
