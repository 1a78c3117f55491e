package admin

import (
	"slices"

	"github.com/csiemu/csiemu/emulator"
)

// matrix is which volume is on which node.
type matrix struct {
	Nodes []emulator.NodeView
	Rows  []matrixRow
}

// matrixRow is one volume, with a place for each node.
type matrixRow struct {
	Volume emulator.Volume
	Places []place
}

// place is a volume on a node.
type place struct {
	Node               string
	Attached, ReadOnly bool
	Staged             bool
	Published          int
}

// Used is true where there is anything.
func (p place) Used() bool { return p.Attached || p.Staged || p.Published > 0 }

// newMatrix has a row for each volume, and a column for each node, those included
// that are gone but have volumes.
func newMatrix(volumes []emulator.Volume, nodes []emulator.NodeView, attachments []emulator.Attachment, mounts []emulator.Mount) matrix {
	m := matrix{Nodes: slices.Clone(nodes)}
	column := map[string]int{}
	for i, n := range nodes {
		column[n.Name] = i
	}
	learn := func(node string) {
		if _, known := column[node]; !known {
			column[node] = len(m.Nodes)
			m.Nodes = append(m.Nodes, emulator.NodeView{Name: node})
		}
	}
	for _, a := range attachments {
		learn(a.Node)
	}
	for _, mount := range mounts {
		learn(mount.Node)
	}
	row := map[string][]place{}
	for _, v := range volumes {
		places := make([]place, len(m.Nodes))
		for i, n := range m.Nodes {
			places[i].Node = n.Name
		}
		row[v.ID] = places
		m.Rows = append(m.Rows, matrixRow{Volume: v, Places: places})
	}
	for _, a := range attachments {
		if places := row[a.Volume]; places != nil {
			p := &places[column[a.Node]]
			p.Attached, p.ReadOnly = true, a.ReadOnly
		}
	}
	for _, mount := range mounts {
		places := row[mount.Volume]
		if places == nil {
			continue // deleted, or inline
		}
		if p := &places[column[mount.Node]]; mount.Staged {
			p.Staged = true
		} else {
			p.Published++
		}
	}
	return m
}
