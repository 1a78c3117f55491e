//go:build linux

package loop

import (
	"context"
	"fmt"
	"iter"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/imagefile"
)

// Allocated yields the ranges of a snapshot that hold data.
func (b *Backend) Allocated(ctx context.Context, s backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	return func(yield func(backends.Extent, error) bool) {
		f, err := imagefile.Open(s.Dir, true)
		if err != nil {
			yield(backends.Extent{}, fmt.Errorf("read extents of snapshot %s: %w", s.ID, err))
			return
		}
		defer f.Close()
		blockio.Extents(ctx, f, from)(yield)
	}
}

// Changed yields the ranges of target that differ from base.
func (b *Backend) Changed(ctx context.Context, base, target backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	return func(yield func(backends.Extent, error) bool) {
		old, err := imagefile.Open(base.Dir, true)
		if err != nil {
			yield(backends.Extent{}, fmt.Errorf("compare snapshot %s with %s: %w", target.ID, base.ID, err))
			return
		}
		defer old.Close()
		f, err := imagefile.Open(target.Dir, true)
		if err != nil {
			yield(backends.Extent{}, fmt.Errorf("compare snapshot %s with %s: %w", target.ID, base.ID, err))
			return
		}
		defer f.Close()
		blockio.Changed(ctx, old, f, from)(yield)
	}
}
