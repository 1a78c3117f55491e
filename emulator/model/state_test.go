package model_test

import (
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// state is a family of objects: a few volumes by name, and their snapshots. It
// is never changed, only copied.
type state struct {
	// names are the volumes that exist; their ids may be unknown(name).
	names map[string]string
	// volumes has those that exist, and deleted ones that a node has staged.
	volumes   map[string]volume
	snapshots map[string]snapshot
	// gone are the ids of volumes, snapshots and attachments of the past.
	gone map[string]bool
}

// volume is a volume by its id.
type volume struct {
	name, source string
	exists       bool
	// made is the size at creation, size the one after the last growth.
	made, size int64
	// device is the attachment's id, readOnly whether it refuses writes.
	device   string
	readOnly bool
	attached map[string]usage
	staged   map[string]staging
}

// usage is how a node attached a volume, or how it is published at a target.
type usage struct {
	mode     csi.VolumeCapability_AccessMode_Mode
	readOnly bool
}

// staging is a volume on one node.
type staging struct {
	path, device string
	mode         csi.VolumeCapability_AccessMode_Mode
	targets      map[string]usage
}

type snapshot struct {
	id, source string
	size       int64
}

// unknown stands for the id of something that was made by a call whose answer
// was lost.
func unknown(name string) string { return "?" + name }

func isUnknown(id string) bool { return id != "" && id[0] == '?' }

func newState() *state {
	return &state{names: map[string]string{}, volumes: map[string]volume{}, snapshots: map[string]snapshot{}, gone: map[string]bool{}}
}

// key tells states apart: maps are printed in order.
func (s *state) key() string { return fmt.Sprint(*s) }

// clone copies s, for its maps to be changed, but not what is in a volume.
func (s *state) clone() *state {
	return &state{
		names: maps.Clone(s.names), volumes: maps.Clone(s.volumes),
		snapshots: maps.Clone(s.snapshots), gone: maps.Clone(s.gone),
	}
}

// with copies s with a change of one volume. A deleted volume that no node has
// staged is forgotten.
func (s *state) with(id string, change func(*volume)) *state {
	next := s.clone()
	v := next.volumes[id]
	v.attached, v.staged = maps.Clone(v.attached), maps.Clone(v.staged)
	change(&v)
	next.volumes[id] = v
	if !v.exists && len(v.staged) == 0 {
		delete(next.volumes, id)
	}
	return next
}

// withStaging copies s with a change of a volume on one node.
func (s *state) withStaging(id, node string, change func(*staging)) *state {
	return s.with(id, func(v *volume) {
		st := v.staged[node]
		st.targets = maps.Clone(st.targets)
		if st.targets == nil {
			st.targets = map[string]usage{}
		}
		change(&st)
		if v.staged == nil {
			v.staged = map[string]staging{}
		}
		v.staged[node] = st
	})
}

// identify says that the volume of a name has an id, which may be news. It is
// false if the id is none that it can have.
func (s *state) identify(name, id string) (*state, bool) {
	have := s.names[name]
	if have == id {
		return s, true
	}
	if !isUnknown(have) || s.gone[id] {
		return nil, false
	}
	next := s.clone()
	next.volumes[id] = next.volumes[have]
	delete(next.volumes, have)
	next.names[name] = id
	return next, true
}

// snapshotByID finds a snapshot.
func (s *state) snapshotByID(id string) (name string, found snapshot, ok bool) {
	for name, snap := range s.snapshots {
		if snap.id == id {
			return name, snap, true
		}
	}
	return "", snapshot{}, false
}

// identifySnapshot is identify for snapshots.
func (s *state) identifySnapshot(name, id string) (*state, bool) {
	snap := s.snapshots[name]
	if snap.id == id {
		return s, true
	}
	if !isUnknown(snap.id) || s.gone[id] {
		return nil, false
	}
	next := s.clone()
	snap.id = id
	next.snapshots[name] = snap
	return next, true
}
