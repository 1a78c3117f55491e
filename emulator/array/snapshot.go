package array

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/undo"
)

// CreateSnapshot makes a snapshot of a volume, or returns the one that has the name
// already if it is of the same volume (backends.ErrExists if not).
func (a *Array) CreateSnapshot(ctx context.Context, name, sourceID string, parameters map[string]string) (*Snapshot, error) {
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
		}
		return s, nil
	}
	if len(parameters) > 0 {
		return nil, fmt.Errorf("create snapshot %q: parameters %q are not known: %w", name, keys(parameters), backends.ErrInvalid)
	}
	v, err := a.Volume(sourceID)
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q: source %w", name, err)
	}
	usage, err := a.backend.Usage(ctx, a.bytesOf(v))
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q: measure volume %s: %w", name, v.ID, err)
	}
	s := &Snapshot{
		ID: newID("snap-"), Name: name, State: Creating, Seq: a.snapshots.next(), SourceID: sourceID, Layout: v.Layout,
		Types: access.TypesOf(v.Capabilities), Pool: v.Pool, ReservedBytes: usage.AllocatedBytes, Accessible: v.Accessible,
	}
	if err := a.pools.reserve(s.Pool, s.ReservedBytes); err != nil {
		return nil, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	if err := a.cut(ctx, v, s); err != nil {
		return nil, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	return a.Snapshot(s.ID)
}

// cut records, copies and commits a planned snapshot, or leaves nothing.
func (a *Array) cut(ctx context.Context, v *Volume, s *Snapshot) error {
	err := a.putSnapshot(ctx, s)
	ready := *s
	if err == nil {
		err = a.holding(ctx, v, func(ctx context.Context) error {
			ready.Created = time.Now().UTC()
			return a.backend.Snapshot(ctx, a.bytesOf(v), a.bytesOfSnapshot(s))
		})
	}
	if err == nil {
		ready.State = Ready
		err = a.putSnapshot(ctx, &ready)
	}
	if err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return a.eraseSnapshot(ctx, s) }))
	}
	return nil
}

// errHeldTooLong says why a copy of a volume in use was given up.
var errHeldTooLong = fmt.Errorf("writers cannot be held longer than %s; detach the volume first, or use a store with reflink (xfs, btrfs): %w",
	backends.HoldLimit, backends.ErrPrecondition)

// holding runs copy while the nodes keep the bytes of v still. All of them
// share one kernel, so one that finds the file system held by another of them
// has nothing left to do.
//
// A hold ends by itself after backends.HoldLimit, and what is copied later
// would not be of one moment: a longer copy is backends.ErrPrecondition.
func (a *Array) holding(ctx context.Context, v *Volume, copy func(context.Context) error) (err error) {
	held := 0
	if len(v.Attachments) > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, backends.HoldLimit, errHeldTooLong)
		defer cancel()
		defer func() {
			if errors.Is(context.Cause(limited), errHeldTooLong) {
				err = fmt.Errorf("copy volume %s while it is in use: %w", v.ID, errors.Join(errHeldTooLong, err))
			}
		}()
		ctx = limited
	}
	for _, nodeID := range v.NodeIDs() {
		release, holdErr := a.holder.Hold(ctx, nodeID, v.ID)
		if held > 0 && errors.Is(holdErr, backends.ErrHeld) {
			continue
		}
		if holdErr != nil {
			return fmt.Errorf("hold volume %s still on node %s: %w", v.ID, nodeID, holdErr)
		}
		held++
		defer func() {
			err = errors.Join(err, undo.Run(ctx, release))
		}()
	}
	return copy(ctx)
}
