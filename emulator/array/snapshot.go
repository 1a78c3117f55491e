package array

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	Name, SourceID string
	Parameters     map[string]string
	// Requisite are the places of CSI's topology requirement; a snapshot is
	// usable where its source is.
	Requisite []map[string]string
}

// CreateSnapshot makes a snapshot of a volume, or returns the one that has the name
// already if it is of the same volume (backends.ErrExists if not).
func (a *Array) CreateSnapshot(ctx context.Context, req SnapshotRequest) (*Snapshot, error) {
	name, sourceID := req.Name, req.SourceID
	if half, ok := a.snapshots.named(name); ok && half.State == Creating {
		// An earlier attempt failed and could not be cleaned up then.
		if err := a.eraseSnapshot(ctx, half); err != nil {
			return nil, fmt.Errorf("create snapshot %q: clean up an earlier attempt: %w", name, err)
		}
	}
	if s, ok := a.snapshots.named(name); ok {
		switch {
		case s.State != Ready:
			return nil, fmt.Errorf("create snapshot %q: its predecessor is being deleted: %w", name, backends.ErrAborted)
		case s.SourceID != sourceID:
			return nil, fmt.Errorf("create snapshot %q: it exists of volume %s: %w", name, s.SourceID, backends.ErrExists)
		case !satisfies(s.Accessible, req.Requisite):
			return nil, fmt.Errorf("create snapshot %q: it exists and is usable from %v, not from %v: %w", name, s.Accessible, req.Requisite, backends.ErrExists)
		}
		return s, nil
	}
	if len(req.Parameters) > 0 {
		return nil, fmt.Errorf("create snapshot %q: parameters %q are not known: %w", name, keys(req.Parameters), backends.ErrInvalid)
	}
	v, err := a.Volume(sourceID)
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q: source %w", name, err)
	}
	if !satisfies(v.Accessible, req.Requisite) {
		return nil, fmt.Errorf("create snapshot %q: it would be usable from %v like its source, not from %v: %w", name, v.Accessible, req.Requisite, backends.ErrExhausted)
	}
	s, err := a.planSnapshot(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	s.Name = name
	if err := a.cut(ctx, v, s); err != nil {
		return nil, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	return a.Snapshot(s.ID)
}

// planSnapshot returns the record of a new snapshot of v, for which space is
// reserved.
func (a *Array) planSnapshot(ctx context.Context, v *Volume) (*Snapshot, error) {
	usage, err := a.backend.Usage(ctx, a.bytesOf(v))
	if err != nil {
		return nil, fmt.Errorf("measure volume %s: %w", v.ID, err)
	}
	s := &Snapshot{
		ID: newID("snap-"), State: Creating, Seq: a.snapshots.next(), SourceID: v.ID, Layout: v.Layout,
		Types: access.TypesOf(v.Capabilities), Pool: v.Pool, ReservedBytes: usage.AllocatedBytes, Accessible: v.Accessible, Demand: v.Demand,
	}
	return s, a.pools.reserve(s.Pool, s.ReservedBytes)
}

// cut records, copies and commits a planned snapshot, or leaves nothing.
func (a *Array) cut(ctx context.Context, v *Volume, s *Snapshot) error {
	err := a.putSnapshot(ctx, s)
	ready := *s
	if err == nil {
		err = step.Done(ctx, "array.snapshot.creating")
	}
	if err == nil {
		err = a.holding(ctx, []*Volume{v}, false, func(ctx context.Context) error {
			ready.Created = time.Now().UTC()
			if err := a.backend.Snapshot(ctx, a.bytesOf(v), a.bytesOfSnapshot(s)); err != nil {
				return err
			}
			return step.Done(ctx, "array.snapshot.cut")
		})
	}
	if err == nil {
		err = step.Done(ctx, "array.snapshot.released")
	}
	if err == nil {
		ready.State = Ready
		err = a.putSnapshot(ctx, &ready)
	}
	if err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return a.eraseSnapshot(ctx, s) }))
	}
	return step.Done(ctx, "array.snapshot.ready")
}
