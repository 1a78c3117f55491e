package array

import (
	"context"
	"errors"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// errHeldTooLong says why a copy of a volume in use was given up.
var errHeldTooLong = fmt.Errorf("writers cannot be held longer than %s; detach the volume first, or use a store with reflink (xfs, btrfs): %w",
	backends.HoldLimit, backends.ErrPrecondition)

// holding runs copy while the bytes of all volumes are still, as far as that is
// possible. With exact it fails where it is not: several volumes are only of one
// moment if none of them is written to.
//
// A hold ends by itself after backends.HoldLimit, and what is copied later
// would not be of one moment: a longer copy is backends.ErrPrecondition.
func (a *Array) holding(ctx context.Context, volumes []*Volume, exact bool, copy func(context.Context) error) (err error) {
	for _, v := range volumes {
		if len(v.Attachments) == 0 {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, backends.HoldLimit, errHeldTooLong)
		defer cancel()
		defer func() {
			if errors.Is(context.Cause(limited), errHeldTooLong) {
				err = fmt.Errorf("copy volume %s while it is in use: %w", v.ID, errors.Join(errHeldTooLong, err))
			}
		}()
		ctx = limited
		break
	}
	for _, v := range volumes {
		release, holdErr := a.hold(ctx, v, exact)
		if holdErr != nil {
			return holdErr
		}
		defer func() {
			err = errors.Join(err, release())
		}()
	}
	return copy(ctx)
}

// hold stops the writers of one volume. All nodes share one kernel, so one that
// finds the file system held by another of them has nothing left to do.
func (a *Array) hold(ctx context.Context, v *Volume, exact bool) (release func() error, err error) {
	var held []func() error
	releaseAll := func() error {
		var errs []error
		for i := len(held) - 1; i >= 0; i-- {
			errs = append(errs, held[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, releaseAll())
		}
	}()
	// The writes of a breakable volume are stopped below the nodes.
	pauser, breakable := a.backend.(backends.BreakableBackend)
	breakable = breakable && v.Layout.Breakable
	nodes := v.NodeIDs()
	if breakable && v.Layout.Block {
		nodes = nil // a pause does all that a node could
	}
	for _, nodeID := range nodes {
		let, err := a.holder.Hold(ctx, nodeID, v.ID, exact && !breakable)
		if len(held) > 0 && errors.Is(err, backends.ErrHeld) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("hold volume %s still on node %s: %w", v.ID, nodeID, err)
		}
		held = append(held, func() error { return undo.Run(ctx, let) })
	}
	if breakable && len(v.Attachments) > 0 {
		let, err := pauser.Pause(ctx, a.bytesOf(v))
		if err != nil {
			return nil, fmt.Errorf("hold the writes to volume %s: %w", v.ID, err)
		}
		held = append(held, let)
		if err := step.Done(ctx, "array.hold.paused"); err != nil {
			return nil, err
		}
	}
	return releaseAll, nil
}
