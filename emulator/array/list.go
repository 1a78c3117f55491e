package array

import (
	"slices"
	"strings"
)

// List returns a page of volumes and the token of the next page, if there is
// one. limit 0 means no limit. A token that is none of ours is
// backends.ErrAborted.
func (a *Array) List(token string, limit int) ([]*Volume, string, error) {
	return a.volumes.page(token, limit, func(*Volume) bool { return true })
}

// ListSnapshots returns a page of snapshots: all, those of a volume, or the one
// with an id. What does not exist is an empty list.
func (a *Array) ListSnapshots(token string, limit int, id, sourceID string) ([]*Snapshot, string, error) {
	if id != "" {
		s, err := a.Snapshot(id)
		if err != nil || (sourceID != "" && s.SourceID != sourceID) {
			return nil, "", nil
		}
		return []*Snapshot{s}, "", nil
	}
	return a.snapshots.page(token, limit, func(s *Snapshot) bool {
		return (sourceID == "" || s.SourceID == sourceID) && !a.goes(s)
	})
}

// Volumes returns all volumes, oldest first.
func (a *Array) Volumes() []*Volume {
	all, _, _ := a.List("", 0) // only a token can be wrong
	return all
}

// Snapshots returns all snapshots, oldest first.
func (a *Array) Snapshots() []*Snapshot {
	all, _, _ := a.ListSnapshots("", 0, "", "") // only a token can be wrong
	return all
}

// goes reports whether a snapshot belongs to a group that is being deleted: it goes
// with it, all of them at once for callers.
func (a *Array) goes(s *Snapshot) bool {
	g, member := a.groups.get(s.GroupID)
	return member && g.State == Deleting
}

// Groups returns all group snapshots, those half deleted included.
func (a *Array) Groups() []*Group {
	return a.groups.all()
}

// KnownNode is a node with what the array has on it.
type KnownNode struct {
	Node
	// Attached is how many volumes are attached to it, Present whether somebody
	// serves it.
	Attached int64
	Present  bool
}

// Nodes returns the nodes that the array knows, by name.
func (a *Array) Nodes() []KnownNode {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]KnownNode, 0, len(a.nodes))
	for _, n := range a.nodes {
		all = append(all, KnownNode{n, a.attached[n.ID], a.present[n.ID]})
	}
	slices.SortFunc(all, func(m, n KnownNode) int { return strings.Compare(m.ID, n.ID) })
	return all
}
