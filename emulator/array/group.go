package array

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// GroupRequest asks for a group snapshot.
type GroupRequest struct {
	Name string
	// SourceIDs are the volumes; their order does not matter.
	SourceIDs  []string
	Parameters map[string]string
}

// CreateGroup makes snapshots of several volumes that are all of one moment: a
// write that was finished before another began is in all of them if that other
// one is in any. It returns the group that has the name already if it is of the
// same volumes (backends.ErrExists if not). Volumes whose writers cannot be
// stopped are backends.ErrPrecondition. After an error no snapshot is left, unless all
// are cut: then a repeated call returns them.
func (a *Array) CreateGroup(ctx context.Context, req GroupRequest) (*Group, []*Snapshot, error) {
	g, snapshots, err := a.createGroup(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("create group snapshot %q: %w", req.Name, err)
	}
	return g, snapshots, nil
}

func (a *Array) createGroup(ctx context.Context, req GroupRequest) (*Group, []*Snapshot, error) {
	if half, ok := a.groups.named(req.Name); ok && half.State == Creating {
		if err := a.eraseGroup(ctx, half); err != nil {
			return nil, nil, fmt.Errorf("clean up an earlier attempt: %w", err)
		}
	}
	sources := slices.Sorted(slices.Values(req.SourceIDs))
	if g, ok := a.groups.named(req.Name); ok {
		switch {
		case g.State != Ready:
			return nil, nil, fmt.Errorf("its predecessor is being deleted: %w", backends.ErrAborted)
		case !slices.Equal(g.SourceIDs, sources):
			return nil, nil, fmt.Errorf("it exists of the volumes %q: %w", g.SourceIDs, backends.ErrExists)
		case len(req.Parameters) > 0:
			return nil, nil, fmt.Errorf("it exists without the parameters %q: %w", keys(req.Parameters), backends.ErrExists)
		}
		snapshots, err := a.finishGroup(ctx, g)
		return g, snapshots, err
	}
	if len(req.Parameters) > 0 {
		return nil, nil, fmt.Errorf("parameters %q are not known: %w", keys(req.Parameters), backends.ErrInvalid)
	}
	g := &Group{ID: newID("group-"), Name: req.Name, State: Creating, Seq: a.groups.next(), SourceIDs: sources}
	snapshots, volumes, err := a.planGroup(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	if err := a.cutGroup(ctx, g, snapshots, volumes); err != nil {
		return nil, nil, errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return a.dropGroup(ctx, g, snapshots) }))
	}
	if err := step.Done(ctx, "array.group.ready"); err != nil {
		return nil, nil, err
	}
	g, err = a.Group(g.ID)
	if err != nil {
		return nil, nil, err
	}
	snapshots, err = a.finishGroup(ctx, g)
	return g, snapshots, err
}

// planGroup makes the records of the group's snapshots, with space reserved for
// all of them or for none.
func (a *Array) planGroup(ctx context.Context, g *Group) (snapshots []*Snapshot, volumes []*Volume, err error) {
	defer func() {
		if err != nil {
			for _, s := range snapshots {
				a.pools.release(s.Pool, s.ReservedBytes)
			}
		}
	}()
	for i, id := range g.SourceIDs {
		if i > 0 && g.SourceIDs[i-1] == id {
			return snapshots, nil, fmt.Errorf("volume %q is named twice: %w", id, backends.ErrInvalid)
		}
		v, err := a.Volume(id)
		if err != nil {
			return snapshots, nil, fmt.Errorf("source %w", err)
		}
		s, err := a.planSnapshot(ctx, v)
		if err != nil {
			return snapshots, nil, err
		}
		// Members are found by their group; their name is only unique.
		s.Name, s.GroupID = s.ID, g.ID
		g.SnapshotIDs = append(g.SnapshotIDs, s.ID)
		snapshots, volumes = append(snapshots, s), append(volumes, v)
	}
	return snapshots, volumes, nil
}

// cutGroup records and cuts all snapshots. The record of the group, written last,
// commits all of them.
func (a *Array) cutGroup(ctx context.Context, g *Group, snapshots []*Snapshot, volumes []*Volume) error {
	if err := a.putGroup(ctx, g); err != nil {
		return err
	}
	if err := step.Done(ctx, "array.group.creating"); err != nil {
		return err
	}
	for _, s := range snapshots {
		if err := a.putSnapshot(ctx, s); err != nil {
			return err
		}
		if err := step.Done(ctx, "array.snapshot.creating"); err != nil {
			return err
		}
	}
	ready := *g
	ready.State = Ready
	err := a.holding(ctx, volumes, len(volumes) > 1, func(ctx context.Context) error {
		ready.Created = time.Now().UTC()
		for i, s := range snapshots {
			if err := a.backend.Snapshot(ctx, a.bytesOf(volumes[i]), a.bytesOfSnapshot(s)); err != nil {
				return err
			}
			if err := step.Done(ctx, "array.snapshot.cut"); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = step.Done(ctx, "array.snapshot.released")
	}
	if err != nil {
		return err
	}
	return a.putGroup(ctx, &ready)
}

// dropGroup undoes a failed cut, of which some snapshots may not be recorded.
func (a *Array) dropGroup(ctx context.Context, g *Group, snapshots []*Snapshot) error {
	for _, s := range snapshots {
		if _, recorded := a.snapshots.get(s.ID); !recorded {
			a.pools.release(s.Pool, s.ReservedBytes)
		}
	}
	return a.eraseGroup(ctx, g)
}

// finishGroup makes the records of a committed group's snapshots say that they are
// ready, unless the group is being deleted, and returns them.
func (a *Array) finishGroup(ctx context.Context, g *Group) ([]*Snapshot, error) {
	a.finishing.Lock()
	defer a.finishing.Unlock()
	if now, ok := a.groups.get(g.ID); !ok || now.State != Ready {
		return nil, fmt.Errorf("group snapshot %s is being deleted: %w", g.ID, backends.ErrAborted)
	}
	members := a.members(g)
	for _, s := range members {
		if have, ok := a.snapshots.get(s.ID); !ok || have.State == Ready {
			continue
		}
		if err := a.putSnapshot(ctx, s); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// Group returns a group snapshot's record, or backends.ErrNotFound.
func (a *Array) Group(id string) (*Group, error) {
	g, ok := a.groups.get(id)
	if !ok || g.State != Ready {
		return nil, fmt.Errorf("group snapshot %q: %w", id, backends.ErrNotFound)
	}
	return g, nil
}

// GetGroup returns a group and its snapshots. snapshotIDs, if there are any, have
// to be its own: backends.ErrInvalid.
func (a *Array) GetGroup(ctx context.Context, id string, snapshotIDs []string) (*Group, []*Snapshot, error) {
	g, err := a.Group(id)
	if err == nil {
		err = g.isOf(snapshotIDs)
	}
	if err != nil {
		return nil, nil, err
	}
	return g, a.members(g), nil
}

// members are the snapshots of a group that is committed, which makes them ready
// whatever their own records say yet. One whose record was lost is missing.
func (a *Array) members(g *Group) []*Snapshot {
	var all []*Snapshot
	for _, id := range g.SnapshotIDs {
		s, ok := a.snapshots.get(id)
		if !ok {
			continue
		}
		if s.State == Creating {
			ready := *s
			ready.State, ready.Created = Ready, g.Created
			s = &ready
		}
		all = append(all, s)
	}
	return all
}

// Members are the ids of the snapshots of a group, whatever its state; none of a
// group that does not exist.
func (a *Array) Members(groupID string) []string {
	g, ok := a.groups.get(groupID)
	if !ok {
		return nil
	}
	return g.SnapshotIDs
}

// isOf checks a caller's list of a group's snapshots; an empty one says nothing.
func (g *Group) isOf(snapshotIDs []string) error {
	if len(snapshotIDs) == 0 {
		return nil
	}
	have, want := slices.Sorted(slices.Values(g.SnapshotIDs)), slices.Sorted(slices.Values(snapshotIDs))
	if !slices.Equal(have, want) {
		return fmt.Errorf("group snapshot %s consists of %q, not of %q: %w", g.ID, have, want, backends.ErrInvalid)
	}
	return nil
}

// DeleteGroup removes a group and its snapshots; one that does not exist is no
// error. snapshotIDs are as in GetGroup.
func (a *Array) DeleteGroup(ctx context.Context, id string, snapshotIDs []string) error {
	g, ok := a.groups.get(id)
	if !ok {
		return nil
	}
	if err := g.isOf(snapshotIDs); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	deleting := *g
	deleting.State = Deleting
	if err := a.putGroup(ctx, &deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := step.Done(ctx, "array.group.deleting"); err != nil {
		return fmt.Errorf("delete group snapshot %s: %w", id, err)
	}
	if err := a.eraseGroup(ctx, &deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// eraseGroup removes the snapshots of a group, then its record.
func (a *Array) eraseGroup(ctx context.Context, g *Group) error {
	for _, id := range g.SnapshotIDs {
		if s, ok := a.snapshots.get(id); ok {
			if err := a.eraseSnapshot(ctx, s); err != nil {
				return err
			}
		}
	}
	if err := a.store.Delete(ctx, groupKind, g.ID); err != nil {
		return fmt.Errorf("remove the record of group snapshot %s: %w", g.ID, err)
	}
	a.groups.remove(g)
	return step.Done(ctx, "array.group.forgotten")
}

func (a *Array) putGroup(ctx context.Context, g *Group) error {
	if err := a.store.Put(ctx, groupKind, g.ID, g); err != nil {
		return fmt.Errorf("record group snapshot %s: %w", g.ID, err)
	}
	a.groups.put(g)
	return nil
}
