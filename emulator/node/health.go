package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csiemu/csiemu/backends"
)

// The statuses of a node's storage, by the names of CSI's
// StorageHealthErrorType.
const (
	StorageDegraded    backends.HealthStatus = "STORAGE_DEGRADED"
	StorageUnreachable backends.HealthStatus = "STORAGE_UNREACHABLE"
)

// Health is what is wrong with a volume on this node: what the backend sees of it
// and what SetHealth said. A volume that is not staged here has nothing wrong, as
// far as the node knows; one that does not exist is backends.ErrNotFound.
func (n *Node) Health(ctx context.Context, volumeID string) ([]backends.Condition, error) {
	said := n.said(volumeID)
	v, ok := n.get(volumeID)
	if !ok {
		// What is known of its own accord needs no array.
		_, err := n.Array.SizeOf(ctx, volumeID)
		if err != nil && (len(said) == 0 || errors.Is(err, backends.ErrNotFound)) {
			return nil, fmt.Errorf("get the health on node %s: %w", n.Name, err)
		}
		return said, nil
	}
	seer, ok := n.Backend.(backends.HealthNode)
	if !ok || !v.Whole {
		return said, nil
	}
	seen, err := seer.Health(ctx, v.Staged)
	if err != nil {
		return nil, fmt.Errorf("get the health of volume %s on node %s: %w", volumeID, n.Name, err)
	}
	return backends.Conditions(said, seen), nil
}

func (n *Node) said(volumeID string) []backends.Condition {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Clone(n.health[volumeID])
}

// SetHealth says what is wrong with a volume on this node, in place of what was
// said before. It is not recorded.
func (n *Node) SetHealth(volumeID string, conditions []backends.Condition) error {
	if err := backends.CheckVolumeConditions(conditions); err != nil {
		return fmt.Errorf("set the health of volume %s on node %s: %w", volumeID, n.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(conditions) == 0 {
		delete(n.health, volumeID)
		return nil
	}
	n.health[volumeID] = slices.Clone(conditions)
	return nil
}

// StorageHealth is what is wrong with the storage as this node sees it: the array
// does not answer, or what SetStorageHealth said.
func (n *Node) StorageHealth(ctx context.Context) []backends.Condition {
	n.mu.RLock()
	said := slices.Clone(n.storage)
	n.mu.RUnlock()
	// Any answer will do.
	const nobody = "csiemu-storage-health"
	if _, err := n.Array.SizeOf(ctx, nobody); err != nil && !errors.Is(err, backends.ErrNotFound) {
		said = append(said, backends.Condition{Status: StorageUnreachable, Reason: "ArrayUnreachable", Message: err.Error()})
	}
	return said
}

// SetStorageHealth says what is wrong with the storage as this node sees it, in
// place of what was said before. It is not recorded.
func (n *Node) SetStorageHealth(conditions []backends.Condition) error {
	if err := backends.CheckConditions(conditions, StorageDegraded, StorageUnreachable); err != nil {
		return fmt.Errorf("set the health of the storage of node %s: %w", n.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.storage = slices.Clone(conditions)
	return nil
}
