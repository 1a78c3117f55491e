package emulator

import (
	"context"
	"errors"
	"fmt"
)

// Teardown takes everything away that callers left: on the nodes of this process it
// unpublishes and unstages, in its array it detaches and deletes volumes,
// snapshots and groups. It goes on after errors and returns all of them. Calls
// must have ended before.
func (e *Emulator) Teardown(ctx context.Context) error {
	var errs []error
	failed := func(what, id string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("tear down: %s %s: %w", what, id, err))
		}
	}
	failed("heal", "all volumes", e.ClearFaults(ctx))
	for _, n := range e.nodes {
		for _, v := range n.node.Records() {
			for _, t := range v.Targets {
				failed("unpublish volume", v.ID, n.node.Unpublish(ctx, v.ID, t.Path))
			}
			if !v.Ephemeral {
				failed("unstage volume", v.ID, n.node.Unstage(ctx, v.ID, v.StagingPath))
			}
		}
	}
	if e.array == nil {
		return errors.Join(errs...)
	}
	for _, g := range e.array.Groups() {
		failed("delete group snapshot", g.ID, e.array.DeleteGroup(ctx, g.ID, nil))
	}
	for _, s := range e.array.Snapshots() {
		failed("delete snapshot", s.ID, e.array.DeleteSnapshot(ctx, s.ID))
	}
	for _, v := range e.array.Volumes() {
		if len(v.Attachments) > 0 {
			failed("detach volume", v.ID, e.array.Detach(ctx, v.ID, ""))
		}
		failed("delete volume", v.ID, e.array.Delete(ctx, v.ID))
	}
	return errors.Join(errs...)
}
