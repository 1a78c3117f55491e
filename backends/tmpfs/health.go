//go:build linux

package tmpfs

import (
	"context"

	"github.com/csiemu/csiemu/backends"
)

// Health sees a tmpfs that went with the machine, or was unmounted.
func (b *Backend) Health(ctx context.Context, v backends.Volume) ([]backends.Condition, error) {
	if v.Block {
		return b.loops.Health(ctx, blockVolume(v))
	}
	if _, err := device(dataDir(v.Dir)); err != nil {
		return []backends.Condition{{Status: backends.DataLoss, Reason: "MemoryLost", Message: err.Error()}}, nil //nolint:nilerr // it is the answer
	}
	return nil, nil
}

// Health sees a staging path where the tmpfs is not mounted any more.
func (n *node) Health(ctx context.Context, s backends.Staged) ([]backends.Condition, error) {
	if s.Block {
		if seer, ok := n.block.(backends.HealthNode); ok {
			return seer.Health(ctx, s)
		}
		return nil, nil
	}
	staged, err := mountedAt(s, s.Path)
	if err != nil {
		return nil, err
	}
	if !staged {
		return []backends.Condition{{Status: backends.Inaccessible, Reason: "NotMounted", Message: "the tmpfs is not mounted at the staging path"}}, nil
	}
	return nil, nil
}
