package array

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/csiemu/csiemu/backends"
)

// Ranges are ranges of a snapshot's bytes, found while they are read.
type Ranges struct {
	// SizeBytes is the size of the volume at the cut.
	SizeBytes int64
	// All are ascending, do not overlap, are not empty, end after the offset
	// that was asked for and not behind SizeBytes. The store is read as far as
	// the sequence is, and no lock is held meanwhile: a snapshot that is deleted
	// keeps its bytes for those who read them already. After an error, which
	// includes that of the context, the sequence ends. backends.ErrPrecondition
	// is returned where the bytes of this snapshot are kept in no blocks,
	// backends.ErrNotFound when it was deleted first.
	All iter.Seq2[backends.Extent, error]
}

// Allocated returns the ranges of a snapshot that hold data and end after from,
// in bytes: CSI, GetMetadataAllocated. The snapshot may be
// backends.ErrNotFound, from backends.ErrOutOfRange, and a backend without
// extents is backends.ErrPrecondition.
func (a *Array) Allocated(ctx context.Context, id string, from int64) (*Ranges, error) {
	fail := func(err error) (*Ranges, error) {
		return nil, fmt.Errorf("find the allocated blocks: %w", err)
	}
	s, err := a.Snapshot(id)
	if err != nil {
		return fail(err)
	}
	b, err := a.extentsOf(s, from)
	if err != nil {
		return fail(err)
	}
	return a.ranges(s, b.Allocated(ctx, a.bytesOfSnapshot(s), from), id), nil
}

// Changed returns the ranges of a snapshot, the target, that differ from those
// of an earlier one of the same volume, the base, and end after from, in bytes:
// CSI, GetMetadataDelta. Of a volume that grew in between, what lies behind the
// end of base counts as changed where it holds data. The errors are those of
// Allocated, and backends.ErrInvalid for snapshots of different volumes or in
// the wrong order. A snapshot does not differ from itself.
func (a *Array) Changed(ctx context.Context, baseID, targetID string, from int64) (*Ranges, error) {
	fail := func(err error) (*Ranges, error) {
		return nil, fmt.Errorf("find the changed blocks: %w", err)
	}
	base, err := a.Snapshot(baseID)
	if err != nil {
		return fail(fmt.Errorf("base %w", err))
	}
	target, err := a.Snapshot(targetID)
	if err != nil {
		return fail(fmt.Errorf("target %w", err))
	}
	switch {
	case base.SourceID != target.SourceID:
		return fail(fmt.Errorf("base %s is of volume %s and target %s of volume %s: %w",
			baseID, base.SourceID, targetID, target.SourceID, backends.ErrInvalid))
	case base.Seq > target.Seq:
		// A list of what changed backwards would lack what lies behind the end
		// of the later one, which may be longer.
		return fail(fmt.Errorf("base %s was made after target %s; exchange them: %w", baseID, targetID, backends.ErrInvalid))
	}
	b, err := a.extentsOf(target, from)
	if err != nil {
		return fail(err)
	}
	return a.ranges(target, b.Changed(ctx, a.bytesOfSnapshot(base), a.bytesOfSnapshot(target), from), baseID, targetID), nil
}

// extentsOf is the backend as one that knows extents, after a look at the
// offset from which those of s are wanted.
func (a *Array) extentsOf(s *Snapshot, from int64) (backends.ExtentBackend, error) {
	if from < 0 || from > s.Layout.SizeBytes {
		return nil, fmt.Errorf("start at byte %d of snapshot %s, which has %d bytes: %w", from, s.ID, s.Layout.SizeBytes, backends.ErrOutOfRange)
	}
	b, ok := a.backend.(backends.ExtentBackend)
	if !ok {
		return nil, fmt.Errorf("changed block tracking is not enabled: backend %s has no blocks: %w", a.backend.Name(), backends.ErrPrecondition)
	}
	return b, nil
}

// ranges ends a sequence with the volume of s: after a crash the bytes can be
// longer than the record says, if that was to be grown. ids are the snapshots
// that are read.
func (a *Array) ranges(s *Snapshot, all iter.Seq2[backends.Extent, error], ids ...string) *Ranges {
	size := s.Layout.SizeBytes
	return &Ranges{SizeBytes: size, All: func(yield func(backends.Extent, error) bool) {
		for e, err := range all {
			if err != nil {
				yield(backends.Extent{}, a.explainGone(err, ids))
				return
			}
			e.Length = min(e.Length, size-e.Offset)
			if e.Length <= 0 || !yield(e, nil) {
				return
			}
		}
	}}
}

// explainGone says of bytes that are gone that a snapshot was deleted meanwhile,
// if that is so.
func (a *Array) explainGone(err error, ids []string) error {
	if !errors.Is(err, backends.ErrDataLoss) {
		return err
	}
	for _, id := range ids {
		if _, gone := a.Snapshot(id); gone != nil {
			return fmt.Errorf("%s: it was deleted meanwhile: %w", err.Error(), gone)
		}
	}
	return err
}
