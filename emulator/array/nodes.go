package array

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

// nodeRecordID turns a node id, which may hold any character, into a record's.
func nodeRecordID(nodeID string) string {
	sum := sha256.Sum256([]byte(nodeID))
	return hex.EncodeToString(sum[:16])
}

func (a *Array) knows(nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.nodes[nodeID]; !ok {
		return fmt.Errorf("node %q: %w", nodeID, backends.ErrNotFound)
	}
	return nil
}

// countNode makes room for one more attachment on a node.
func (a *Array) countNode(nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if limit := a.nodes[nodeID].MaxVolumes; limit > 0 && a.attached[nodeID] >= limit {
		return fmt.Errorf("node %s has its %d volumes attached; detach one first: %w", nodeID, limit, backends.ErrExhausted)
	}
	a.attached[nodeID]++
	return nil
}

func (a *Array) uncountNode(nodeID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attached[nodeID]--; a.attached[nodeID] <= 0 {
		delete(a.attached, nodeID)
	}
}

// served returns the nodes that are present, in no order.
func (a *Array) served() []Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Node, 0, len(a.present))
	for id := range a.present {
		out = append(out, a.nodes[id])
	}
	return out
}
