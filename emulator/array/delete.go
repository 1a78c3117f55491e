package array

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

// Delete removes a volume. One that does not exist is no error; one that a node
// is attached to is backends.ErrPrecondition. Snapshots are independent of
// their source and stay.
func (a *Array) Delete(ctx context.Context, id string) error {
	v, ok := a.volumes.get(id)
	if !ok {
		return nil
	}
	if len(v.Attachments) > 0 {
		return fmt.Errorf("delete volume %s: it is attached to %q: %w", id, v.NodeIDs(), backends.ErrPrecondition)
	}
	deleting := v.clone()
	deleting.State = Deleting
	if err := a.put(ctx, deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := step.Done(ctx, "array.volume.deleting"); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	if err := a.erase(ctx, deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.lingering, id)
	delete(a.faultHealth, id)
	delete(a.unfound, id)
	return nil
}

// erase removes the bytes of a volume, then its record.
func (a *Array) erase(ctx context.Context, v *Volume) error {
	if err := a.backend.Delete(ctx, a.bytesOf(v)); err != nil {
		return fmt.Errorf("remove the bytes of volume %s: %w", v.ID, err)
	}
	if err := step.Done(ctx, "array.volume.erased"); err != nil {
		return err
	}
	return a.forget(ctx, v)
}

// forget removes the record of a volume that has no bytes, and with it what was
// reserved for it.
func (a *Array) forget(ctx context.Context, v *Volume) error {
	if err := a.store.Delete(ctx, volumeKind, v.ID); err != nil {
		return fmt.Errorf("remove the record of volume %s: %w", v.ID, err)
	}
	a.volumes.remove(v)
	a.pools.release(v.Pool, v.Layout.SizeBytes)
	return step.Done(ctx, "array.volume.forgotten")
}

// DeleteSnapshot removes a snapshot; one that does not exist is no error.
func (a *Array) DeleteSnapshot(ctx context.Context, id string) error {
	s, ok := a.snapshots.get(id)
	if !ok {
		return nil
	}
	if _, member := a.groups.get(s.GroupID); member {
		return fmt.Errorf("delete snapshot %s: it belongs to group snapshot %s; delete that: %w", id, s.GroupID, backends.ErrInvalid)
	}
	deleting := *s
	deleting.State = Deleting
	if err := a.putSnapshot(ctx, &deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := step.Done(ctx, "array.snapshot.deleting"); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	if err := a.eraseSnapshot(ctx, &deleting); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// eraseSnapshot removes the bytes of a snapshot, then its record and what was
// reserved for it.
func (a *Array) eraseSnapshot(ctx context.Context, s *Snapshot) error {
	if err := a.backend.DeleteSnapshot(ctx, a.bytesOfSnapshot(s)); err != nil {
		return fmt.Errorf("remove the bytes of snapshot %s: %w", s.ID, err)
	}
	if err := step.Done(ctx, "array.snapshot.erased"); err != nil {
		return err
	}
	if err := a.store.Delete(ctx, snapshotKind, s.ID); err != nil {
		return fmt.Errorf("remove the record of snapshot %s: %w", s.ID, err)
	}
	a.snapshots.remove(s)
	a.pools.release(s.Pool, s.ReservedBytes)
	return step.Done(ctx, "array.snapshot.forgotten")
}

func (a *Array) putSnapshot(ctx context.Context, s *Snapshot) error {
	if err := a.store.Put(ctx, snapshotKind, s.ID, s); err != nil {
		return fmt.Errorf("record snapshot %s: %w", s.ID, err)
	}
	a.snapshots.put(s)
	return nil
}
