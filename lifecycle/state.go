package lifecycle

import (
	"github.com/csiemu/csiemu/journal"
)

// knowledge is what is known of one state of a volume.
type knowledge int

const (
	// unknown is a state from before the first call, or after one that failed.
	unknown knowledge = iota
	no
	yes
)

// fact is a state with the call that made it so.
type fact struct {
	is   knowledge
	call *journal.Entry
}

// volume is what the calls so far say of a volume.
type volume struct {
	// created is the call that made it, nil for one that was there before.
	created *journal.Entry
	context map[string]string
	// size is what the controller promised, in bytes.
	size  int64
	nodes map[string]*onNode
}

// onNode is a volume on one node.
type onNode struct {
	attached fact
	// publishContext is what the last ControllerPublishVolume answered.
	publishContext map[string]string
	// staged and published are facts by path.
	staged, published map[string]fact
}

// peek returns what is known of a volume.
func (c *Checker) peek(id string) *volume {
	if v := c.volumes[id]; v != nil {
		return v
	}
	return &volume{nodes: map[string]*onNode{}}
}

// of is peek, and begins to keep it.
func (c *Checker) of(id string) *volume {
	v := c.peek(id)
	c.volumes[id] = v
	return v
}

// on returns what is known of the volume on a node. Of a volume whose creation was
// seen, nothing was done before.
func (v *volume) on(node string) *onNode {
	n := v.nodes[node]
	if n == nil {
		n = &onNode{staged: map[string]fact{}, published: map[string]fact{}}
		if v.created != nil {
			n.attached = fact{is: no}
		}
		v.nodes[node] = n
	}
	return n
}

// anyOf returns a fact that is so, if there is one.
func anyOf(facts map[string]fact) (fact, bool) {
	for _, f := range facts {
		if f.is == yes {
			return f, true
		}
	}
	return fact{}, false
}

// possible reports whether some fact may be so.
func possible(facts map[string]fact) bool {
	for _, f := range facts {
		if f.is != no {
			return true
		}
	}
	return false
}
