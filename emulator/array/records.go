package array

import (
	"maps"
	"slices"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
)

// The kinds of record in the array's store.
const (
	volumeKind   = "volumes"
	snapshotKind = "snapshots"
	groupKind    = "groups"
	nodeKind     = "nodes"
)

// State is how far the making or removing of a volume or snapshot has come.
type State string

const (
	// Creating is recorded before bytes exist; start-up undoes it.
	Creating State = "creating"
	// Ready is recorded when the bytes are whole.
	Ready State = "ready"
	// Deleting is recorded before bytes go; start-up finishes it.
	Deleting State = "deleting"
)

// Volume is a volume's record. A *Volume that the array hands out is never
// changed afterwards, so that readers need no lock.
type Volume struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State State  `json:"state"`
	// Seq is the volume's place in lists: higher for later ones, never used
	// again.
	Seq    uint64          `json:"seq"`
	Layout backends.Layout `json:"layout"`
	// Growing is set while the bytes may be shorter than the layout says.
	Growing      bool                `json:"growing,omitempty"`
	Pool         string              `json:"pool"`
	Parameters   map[string]string   `json:"parameters,omitempty"`
	Capabilities []access.Capability `json:"capabilities"`
	// Accessible are the topology segments from which the volume can be used;
	// empty means from everywhere.
	Accessible []map[string]string `json:"accessible,omitempty"`
	Source     Source              `json:"source,omitzero"`
	// Demand is what the class wants to be told before it serves calls.
	Demand access.Demand `json:"demand,omitzero"`
	// Mutable are the mutable parameters in force.
	Mutable map[string]string `json:"mutable,omitempty"`
	// MutableAtCreation are those of CreateVolume, which a retry repeats.
	MutableAtCreation map[string]string `json:"mutableAtCreation,omitempty"`
	// Health is what is said to be wrong with the volume, besides what the
	// backend sees.
	Health  []backends.Condition `json:"health,omitempty"`
	Created time.Time            `json:"created"`
	// Device is the attachment of the volume's device, nil while no node is
	// attached.
	Device      *backends.Attachment `json:"device,omitempty"`
	Attachments []Attachment         `json:"attachments,omitempty"`
}

// Source names what a volume was made from; at most one field is set.
type Source struct {
	SnapshotID string `json:"snapshotID,omitempty"`
	VolumeID   string `json:"volumeID,omitempty"`
}

// Attachment is one node's attachment of a volume.
type Attachment struct {
	NodeID   string `json:"nodeID"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Capability is what ControllerPublishVolume asked for; for a local
	// attachment it is not known.
	Capability access.Capability `json:"capability,omitzero"`
	// Local is set where the node attached the volume by itself, for a driver
	// without ControllerPublishVolume.
	Local bool `json:"local,omitempty"`
}

// NodeIDs are the nodes that the volume is attached to.
func (v *Volume) NodeIDs() []string {
	ids := make([]string, 0, len(v.Attachments))
	for _, a := range v.Attachments {
		ids = append(ids, a.NodeID)
	}
	return ids
}

func (v *Volume) attachment(nodeID string) (Attachment, bool) {
	i := slices.IndexFunc(v.Attachments, func(a Attachment) bool { return a.NodeID == nodeID })
	if i < 0 {
		return Attachment{}, false
	}
	return v.Attachments[i], true
}

// clone copies v as far as the array changes volumes.
func (v *Volume) clone() *Volume {
	c := *v
	c.Attachments = slices.Clone(v.Attachments)
	c.Mutable = maps.Clone(v.Mutable)
	return &c
}

// Snapshot is a snapshot's record, handed out like Volume.
type Snapshot struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	State    State  `json:"state"`
	Seq      uint64 `json:"seq"`
	SourceID string `json:"sourceID"`
	// GroupID is the group snapshot that the snapshot was made by; empty for
	// one of its own.
	GroupID string `json:"groupID,omitempty"`
	// Demand is that of the source.
	Demand access.Demand `json:"demand,omitzero"`
	// Layout is that of the source at the cut.
	Layout backends.Layout `json:"layout"`
	// Types are the access types of the source.
	Types access.Types `json:"types"`
	Pool  string       `json:"pool"`
	// ReservedBytes are what the snapshot takes from its pool: the bytes that
	// its source held just before the cut.
	ReservedBytes int64 `json:"reservedBytes"`
	// Accessible is the source's topology.
	Accessible []map[string]string `json:"accessible,omitempty"`
	// Created is the moment of the cut.
	Created time.Time `json:"created"`
}

// Group is a group snapshot's record, handed out like Volume. It is ready when all
// of its snapshots are whole, and until then none of them exists for callers.
type Group struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State State  `json:"state"`
	Seq   uint64 `json:"seq"`
	// SourceIDs are the volumes and SnapshotIDs their snapshots, in the same
	// order.
	SourceIDs   []string `json:"sourceIDs"`
	SnapshotIDs []string `json:"snapshotIDs"`
	// Created is the moment of the cut.
	Created time.Time `json:"created"`
}

// Node is a node that the array knows.
type Node struct {
	ID       string            `json:"id"`
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes limits the node's attachments; 0 means no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
}
