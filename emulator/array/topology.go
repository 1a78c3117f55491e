package array

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csiemu/csiemu/backends"
)

// within reports whether a place with these segments lies in term: it has all
// of the term's segments.
func within(place, term map[string]string) bool {
	for k, v := range term {
		if have, ok := place[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// satisfies reports whether a volume that is accessible from these segments
// meets a requirement. No requirement is met by any volume.
func satisfies(accessible, requisite []map[string]string) bool {
	if len(requisite) == 0 || len(accessible) == 0 {
		return true
	}
	return slices.ContainsFunc(accessible, func(place map[string]string) bool {
		return slices.ContainsFunc(requisite, func(term map[string]string) bool { return within(place, term) || within(term, place) })
	})
}

// place chooses where a new volume is accessible from: one segment, preferred
// terms first, then requisite ones, then any node (CSI, "TopologyRequirement").
// A copy stays where its source is.
func (a *Array) place(requisite, preferred []map[string]string, src source) ([]map[string]string, error) {
	if !a.topology {
		return nil, nil
	}
	var origin []map[string]string
	switch {
	case src.volume != nil:
		origin = src.volume.Accessible
	case src.snapshot != nil:
		origin = src.snapshot.Accessible
	}
	terms := slices.Concat(preferred, requisite)
	if len(terms) == 0 {
		terms = []map[string]string{{}}
	}
	nodes := a.served()
	slices.SortFunc(nodes, func(m, n Node) int { return cmp.Compare(m.ID, n.ID) })
	for _, term := range terms {
		for _, n := range nodes {
			if !within(n.Topology, term) || len(n.Topology) == 0 {
				continue
			}
			chosen := a.segmentOf(n, term)
			if len(origin) == 0 || slices.ContainsFunc(origin, func(o map[string]string) bool { return within(chosen, o) || within(o, chosen) }) {
				return []map[string]string{chosen}, nil
			}
		}
	}
	return nil, fmt.Errorf("no node, or not that of its source, lies in the topology %v: %w", terms, backends.ErrExhausted)
}

// segmentOf is what a volume placed by term on node n is accessible from.
func (a *Array) segmentOf(n Node, term map[string]string) map[string]string {
	switch {
	case a.nodeKey != "":
		return map[string]string{a.nodeKey: n.Topology[a.nodeKey]}
	case len(term) > 0:
		return term
	}
	return n.Topology
}

// reachable reports whether some node lies in a segment.
func (a *Array) reachable(segment map[string]string) bool {
	if !a.topology {
		return true
	}
	return slices.ContainsFunc(a.served(), func(n Node) bool { return within(n.Topology, segment) })
}

// reachableFrom checks that a node lies where a volume is accessible from.
func (a *Array) reachableFrom(v *Volume, nodeID string) error {
	if len(v.Accessible) == 0 {
		return nil
	}
	a.mu.Lock()
	n := a.nodes[nodeID]
	a.mu.Unlock()
	if slices.ContainsFunc(v.Accessible, func(term map[string]string) bool { return within(n.Topology, term) }) {
		return nil
	}
	return fmt.Errorf("the volume is accessible from %v, the node lies in %v: %w", v.Accessible, n.Topology, backends.ErrPrecondition)
}
