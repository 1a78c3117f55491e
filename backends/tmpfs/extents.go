//go:build linux

package tmpfs

import (
	"context"
	"fmt"
	"iter"

	"github.com/csiemu/csiemu/backends"
)

// Allocated yields the ranges of the snapshot of a raw block volume that hold
// data. A file system has no blocks: backends.ErrPrecondition.
func (b *Backend) Allocated(ctx context.Context, s backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	if !s.Block {
		return withoutBlocks(s)
	}
	return b.loops.Allocated(ctx, blockSnapshot(s), from)
}

// Changed yields the ranges of target that differ from base. The snapshots of a
// file system are backends.ErrPrecondition.
func (b *Backend) Changed(ctx context.Context, base, target backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	if !target.Block {
		return withoutBlocks(target)
	}
	return b.loops.Changed(ctx, blockSnapshot(base), blockSnapshot(target), from)
}

func withoutBlocks(s backends.Snapshot) iter.Seq2[backends.Extent, error] {
	return func(yield func(backends.Extent, error) bool) {
		yield(backends.Extent{}, fmt.Errorf("changed block tracking is not enabled for snapshot %s: a tmpfs has no blocks, only raw block volumes have: %w", s.ID, backends.ErrPrecondition))
	}
}
