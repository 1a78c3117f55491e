package emulator

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Profile is a driver's behaviour as data: its name, capabilities, limits and
// the parameters of its volumes.
type Profile struct {
	// DriverName is the name that GetPluginInfo answers: at most 63
	// characters in domain form.
	DriverName string
	// VendorVersion is the version that GetPluginInfo answers.
	VendorVersion string
	// Plugin to Group are the capabilities that are advertised
	// and served. An RPC whose capability is missing answers UNIMPLEMENTED.
	Plugin     []csi.PluginCapability_Service_Type
	Expansion  []csi.PluginCapability_VolumeExpansion_Type
	Controller []csi.ControllerServiceCapability_RPC_Type
	Node       []csi.NodeServiceCapability_RPC_Type
	Group      []csi.GroupControllerServiceCapability_RPC_Type
	// MaxVolumesPerNode limits the attachments of a node; 0 means no limit.
	MaxVolumesPerNode int64
	// NodeTopologyKey, when set, gives each node a topology segment of this
	// key with its own name, and makes volumes accessible from one node only.
	NodeTopologyKey string
	// SharedSingleNode allows a second target on one node for access modes
	// that the specification's table forbids it for (SINGLE_NODE_WRITER), as
	// Kubernetes needs for several pods on a node that share a
	// ReadWriteOnce claim.
	SharedSingleNode bool
	// VolumeCondition also tells the health of volumes in the way of CSI before
	// 1.13, for orchestrators that know no other. EnableVolumeCondition sets it.
	VolumeCondition bool
}

func controllerCapabilities() []csi.ControllerServiceCapability_RPC_Type {
	return []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	}
}

func nodeCapabilities() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	}
}

// DefaultProfile is the behaviour of the drivers that csiemu comes with: for
// the backends loop and memory a storage network that attaches volumes, for
// tmpfs volumes that live on one node.
func DefaultProfile(backend string) *Profile {
	p := &Profile{
		DriverName:    backend + ".csiemu.dev",
		VendorVersion: Version(),
		Plugin: []csi.PluginCapability_Service_Type{
			csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
		},
		Expansion:  []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_ONLINE},
		Controller: controllerCapabilities(),
		Node:       nodeCapabilities(),
		Group: []csi.GroupControllerServiceCapability_RPC_Type{
			csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		},
	}
	if backend == "loop" || backend == "tmpfs" { // of tmpfs, raw block volumes only
		p.Plugin = append(p.Plugin, csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE)
	}
	if backend == "tmpfs" {
		p.NodeTopologyKey = "topology." + p.DriverName + "/node"
		p.EnableTopology()
		p.Disable("PUBLISH_UNPUBLISH_VOLUME")
	}
	return p
}

// needs names, for each capability, those that make no sense or are not allowed
// without it (CSI, the comments of the capability enums).
var needs = map[string][]string{
	"CREATE_DELETE_VOLUME":     {"CLONE_VOLUME"},
	"PUBLISH_UNPUBLISH_VOLUME": {"PUBLISH_READONLY", "LIST_VOLUMES_PUBLISHED_NODES"},
	"LIST_VOLUMES":             {"LIST_VOLUMES_PUBLISHED_NODES"},
	"CREATE_DELETE_SNAPSHOT": {
		"LIST_SNAPSHOTS", "GET_SNAPSHOT", "SNAPSHOT_METADATA_SERVICE", "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS",
		"GROUP_CONTROLLER_SERVICE", "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
	},
	"GROUP_CONTROLLER_SERVICE":                {"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"},
	"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT": {"GROUP_CONTROLLER_SERVICE"},
	"VOLUME_ACCESSIBILITY_CONSTRAINTS":        {"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS"},
	"EXPAND_VOLUME":                           {"ONLINE", "OFFLINE"},
	"GET_VOLUME_HEALTH":                       {"LIST_VOLUME_HEALTH"},
}

// Disable takes a capability away, by its name in the specification
// (EXPAND_VOLUME, ONLINE, VOLUME_ACCESSIBILITY_CONSTRAINTS, …), wherever it
// occurs, and with it those that need it. It reports whether the
// specification knows the name.
func (p *Profile) Disable(name string) bool {
	known := false
	for _, names := range []map[string]int32{
		csi.PluginCapability_Service_Type_value, csi.PluginCapability_VolumeExpansion_Type_value,
		csi.ControllerServiceCapability_RPC_Type_value, csi.NodeServiceCapability_RPC_Type_value,
		csi.GroupControllerServiceCapability_RPC_Type_value,
	} {
		_, ok := names[name]
		known = known || ok
	}
	if !known || name == "UNKNOWN" {
		return false
	}
	for _, gone := range append([]string{name}, needs[name]...) {
		p.Plugin = without(p.Plugin, gone)
		p.Expansion = without(p.Expansion, gone)
		p.Controller = without(p.Controller, gone)
		p.Node = without(p.Node, gone)
		p.Group = without(p.Group, gone)
	}
	return true
}

// EnableTopology makes the driver tell and honour where volumes are accessible
// from. It is needed where nodes have topology segments.
func (p *Profile) EnableTopology() {
	for _, constraints := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS,
	} {
		if !p.plugin(constraints) {
			p.Plugin = append(slices.Clone(p.Plugin), constraints)
		}
	}
}

// EnableVolumeCondition makes the driver advertise and tell VolumeCondition, which
// CSI had until 1.12, besides the health RPCs of 1.13.
func (p *Profile) EnableVolumeCondition() {
	if !p.VolumeCondition {
		p.VolumeCondition = true
		p.Controller = append(slices.Clone(p.Controller), controllerVolumeCondition)
		p.Node = append(slices.Clone(p.Node), nodeVolumeCondition)
	}
}

func without[C interface {
	comparable
	String() string
}](all []C, name string) []C {
	return slices.DeleteFunc(slices.Clone(all), func(c C) bool { return c.String() == name })
}

func (p *Profile) controller(c csi.ControllerServiceCapability_RPC_Type) bool {
	return slices.Contains(p.Controller, c)
}

func (p *Profile) node(c csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(p.Node, c)
}

func (p *Profile) plugin(c csi.PluginCapability_Service_Type) bool {
	return slices.Contains(p.Plugin, c)
}

// attaches says whether callers attach volumes with ControllerPublishVolume.
// Where they don't, the node asks the array when it stages.
func (p *Profile) attaches() bool {
	return p.controller(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
}

// stages says whether callers stage volumes with NodeStageVolume.
func (p *Profile) stages() bool {
	return p.node(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// topologyOf is what NodeGetInfo answers for a node.
func (p *Profile) topologyOf(n Node) map[string]string {
	if p.NodeTopologyKey == "" {
		return n.Topology
	}
	segments := maps.Clone(n.Topology)
	if segments == nil {
		segments = map[string]string{}
	}
	segments[p.NodeTopologyKey] = n.Name
	return segments
}
