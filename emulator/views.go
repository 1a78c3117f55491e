package emulator

import (
	"context"
	"fmt"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
)

// Volume is what the array knows of a volume, for tests and for people. It is not
// to be changed.
type Volume struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	SizeBytes  int64             `json:"sizeBytes"`
	Access     string            `json:"access"`
	Pool       string            `json:"pool"`
	Breakable  bool              `json:"breakable,omitempty"`
	Source     string            `json:"source,omitempty"`
	Created    time.Time         `json:"created"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Mutable are the mutable parameters in force.
	Mutable map[string]string `json:"mutable,omitempty"`
	// Nodes are those that the volume is attached to.
	Nodes []string `json:"nodes,omitempty"`
	// Topology is from where it is accessible.
	Topology []map[string]string `json:"topology,omitempty"`
	// Health is what is wrong with it.
	Health []backends.Condition `json:"health,omitempty"`
	// Faults are the mechanisms of the faults that its bytes suffer from.
	Faults []string `json:"faults,omitempty"`
}

// Snapshot is what the array knows of a snapshot; see Volume.
type Snapshot struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Volume    string    `json:"volume"`
	Group     string    `json:"group,omitempty"`
	SizeBytes int64     `json:"sizeBytes"`
	Created   time.Time `json:"created"`
}

// Attachment is a volume on a node, as the array has it.
type Attachment struct {
	Volume   string `json:"volume"`
	Node     string `json:"node"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Access is the access mode; empty where the node attached the volume itself.
	Access string `json:"access,omitempty"`
}

// Mount is a path where a node of this process has a volume.
type Mount struct {
	Node   string `json:"node"`
	Volume string `json:"volume"`
	Path   string `json:"path"`
	// Staged is true for the staging path, false for a target.
	Staged   bool `json:"staged,omitempty"`
	ReadOnly bool `json:"readOnly,omitempty"`
}

// NodeView is what is known of a node.
type NodeView struct {
	Name     string            `json:"name"`
	Topology map[string]string `json:"topology,omitempty"`
	// Attached is how many volumes the array has attached to it.
	Attached int64 `json:"attached"`
	// Present is true while somebody serves it.
	Present bool `json:"present"`
}

// Volumes returns all volumes, oldest first; none where this process has no
// array.
func (e *Emulator) Volumes(ctx context.Context) ([]Volume, error) {
	if e.array == nil {
		return nil, nil
	}
	all := e.array.Volumes()
	views := make([]Volume, 0, len(all))
	for _, v := range all {
		view, err := e.view(ctx, v)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// Volume returns one volume, or backends.ErrNotFound.
func (e *Emulator) Volume(ctx context.Context, id string) (Volume, error) {
	if e.array == nil {
		return Volume{}, fmt.Errorf("volume %q: this process has no array: %w", id, backends.ErrNotFound)
	}
	v, err := e.array.Volume(id)
	if err != nil {
		return Volume{}, err
	}
	return e.view(ctx, v)
}

func (e *Emulator) view(ctx context.Context, v *array.Volume) (Volume, error) {
	health, err := e.array.Health(ctx, v)
	if err != nil {
		return Volume{}, err
	}
	view := Volume{
		ID: v.ID, Name: v.Name, SizeBytes: v.Layout.SizeBytes, Access: accessOf(v.Capabilities), Pool: v.Pool, Breakable: v.Layout.Breakable,
		Source: v.Source.SnapshotID + v.Source.VolumeID, Created: v.Created, Parameters: v.Parameters, Mutable: v.Mutable,
		Nodes: v.NodeIDs(), Topology: v.Accessible, Health: health, Faults: e.broken.of(v.ID),
	}
	return view, nil
}

// accessOf names what a volume is for: block, or its file systems.
func accessOf(all []access.Capability) string {
	types := access.TypesOf(all)
	switch {
	case types.Block && types.Filesystem:
		return "block, mount"
	case types.Block:
		return "block"
	case len(types.FSTypes) == 1:
		return types.FSTypes[0]
	}
	return "mount"
}

// Snapshots returns all snapshots, oldest first.
func (e *Emulator) Snapshots() []Snapshot {
	if e.array == nil {
		return nil
	}
	all := e.array.Snapshots()
	views := make([]Snapshot, 0, len(all))
	for _, s := range all {
		views = append(views, Snapshot{ID: s.ID, Name: s.Name, Volume: s.SourceID, Group: s.GroupID, SizeBytes: s.Layout.SizeBytes, Created: s.Created})
	}
	return views
}

// Attachments returns all attachments, those of one volume together.
func (e *Emulator) Attachments() []Attachment {
	if e.array == nil {
		return nil
	}
	var views []Attachment
	for _, v := range e.array.Volumes() {
		for _, a := range v.Attachments {
			view := Attachment{Volume: v.ID, Node: a.NodeID, ReadOnly: a.ReadOnly}
			if !a.Local {
				view.Access = a.Capability.Mode.String()
			}
			views = append(views, view)
		}
	}
	return views
}

// Mounts returns the staging paths and targets on the nodes of this process, as
// their records have them.
func (e *Emulator) Mounts() []Mount {
	var views []Mount
	for _, n := range e.nodes {
		for _, v := range n.node.Records() {
			if v.Whole && !v.Ephemeral {
				views = append(views, Mount{Node: n.config.Name, Volume: v.ID, Path: v.StagingPath, Staged: true, ReadOnly: v.ReadOnly})
			}
			for _, t := range v.Targets {
				views = append(views, Mount{Node: n.config.Name, Volume: v.ID, Path: t.Path, ReadOnly: t.ReadOnly})
			}
		}
	}
	return views
}

// Nodes returns the nodes that the array knows, or those of this process where it
// has no array.
func (e *Emulator) Nodes() []NodeView {
	var views []NodeView
	if e.array == nil {
		for _, n := range e.nodes {
			views = append(views, NodeView{Name: n.config.Name, Topology: e.profile.topologyOf(n.config), Present: true})
		}
		return views
	}
	for _, n := range e.array.Nodes() {
		views = append(views, NodeView{Name: n.ID, Topology: n.Topology, Attached: n.Attached, Present: n.Present})
	}
	return views
}
