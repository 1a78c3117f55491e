package array

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// Attach attaches a volume to a node and returns the publish context. Attached
// in the same way already gives the same answer, in another way
// backends.ErrExists; attached elsewhere without a multi-node access mode is
// backends.ErrPrecondition, a full node backends.ErrExhausted.
func (a *Array) Attach(ctx context.Context, volumeID string, want Attachment) (map[string]string, error) {
	v, err := a.Volume(volumeID)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if err := a.knows(want.NodeID); err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", volumeID, err)
	}
	if have, ok := v.attachment(want.NodeID); ok {
		if !have.same(want) {
			return nil, fmt.Errorf("attach volume %s to node %s: it is attached there as %s, readonly %t: %w",
				volumeID, want.NodeID, have.Capability, have.ReadOnly, backends.ErrExists)
		}
		return a.connect(ctx, v, want)
	}
	if err := a.admit(v, want); err != nil {
		return nil, fmt.Errorf("attach volume %s to node %s: %w", volumeID, want.NodeID, err)
	}
	if err := a.finishDetach(ctx, v); err != nil {
		return nil, fmt.Errorf("attach volume %s to node %s: %w", volumeID, want.NodeID, err)
	}
	if err := a.countNode(want.NodeID); err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", volumeID, err)
	}
	next := v.clone()
	next.Attachments = append(next.Attachments, want)
	if next.Device == nil {
		next.Device = &backends.Attachment{ID: newID("csiemu-"), ReadOnly: want.readsOnly()}
	}
	publishContext, err := a.connectNew(ctx, v, next, want)
	if err != nil {
		return nil, fmt.Errorf("attach volume %s to node %s: %w", volumeID, want.NodeID, err)
	}
	return publishContext, nil
}

// connectNew records and makes the attachment t, which next has more than v and
// which is counted already. Readers see it when it is made: one that is refused
// was never there.
func (a *Array) connectNew(ctx context.Context, v, next *Volume, t Attachment) (map[string]string, error) {
	err := a.store.Put(ctx, volumeKind, next.ID, next)
	if err == nil {
		err = step.Done(ctx, "array.attachment.recorded")
	}
	if err == nil {
		var publishContext map[string]string
		publishContext, err = a.connect(ctx, next, t)
		if err == nil {
			err = step.Done(ctx, "array.attachment.connected")
		}
		if err == nil {
			a.volumes.put(next)
			return publishContext, nil
		}
	}
	undone := undo.Run(ctx, func(ctx context.Context) error {
		if v.Device == nil {
			if err := a.backend.Detach(ctx, a.bytesOf(next), *next.Device); err != nil {
				return err
			}
		}
		if err := a.put(ctx, v); err != nil {
			return err
		}
		a.uncountNode(t.NodeID)
		return nil
	})
	if undone != nil {
		a.volumes.put(next) // as the record may say
	}
	return nil, errors.Join(err, undone)
}

// connect makes the device of v and returns the publish context of one of its
// attachments.
func (a *Array) connect(ctx context.Context, v *Volume, t Attachment) (map[string]string, error) {
	publishContext, err := a.backend.Attach(ctx, a.bytesOf(v), *v.Device)
	if err != nil {
		return nil, err
	}
	a.found(v.ID)
	a.connected(ctx, v)
	publishContext = maps.Clone(publishContext)
	if publishContext == nil {
		publishContext = map[string]string{}
	}
	publishContext[access.VolumeKey] = v.ID
	publishContext[access.TypesKey] = access.TypesOf(v.Capabilities).String()
	if !v.Demand.IsZero() {
		publishContext[access.SecretsKey] = "demanded"
	}
	if t.readsOnly() {
		publishContext[access.ReadOnlyKey] = "true"
	}
	return publishContext, nil
}

// same reports whether two attachments of a node ask for the same.
func (t Attachment) same(u Attachment) bool {
	return t.Local == u.Local && t.ReadOnly == u.ReadOnly && (t.Local || t.Capability.Same(u.Capability))
}

func (t Attachment) readsOnly() bool { return t.ReadOnly || access.ReaderOnly(t.Capability.Mode) }

// admit checks what a volume's other attachments and its topology forbid.
func (a *Array) admit(v *Volume, want Attachment) error {
	if !want.Local {
		if err := access.TypesOf(v.Capabilities).Allow(want.Capability); err != nil {
			return err
		}
	}
	if err := a.reachableFrom(v, want.NodeID); err != nil {
		return err
	}
	for _, have := range v.Attachments {
		switch {
		case want.Local != have.Local:
			return fmt.Errorf("node %s attached it without ControllerPublishVolume: %w", have.NodeID, backends.ErrPrecondition)
		case want.Local:
			// A driver without ControllerPublishVolume leaves the access mode
			// to its caller.
		case !access.MultiNode(have.Capability.Mode) || !access.MultiNode(want.Capability.Mode):
			return fmt.Errorf("it is attached to node %s as %s: %w", have.NodeID, have.Capability, backends.ErrPrecondition)
		case have.singleWriter() && want.singleWriter():
			return fmt.Errorf("node %s is its single writer: %w", have.NodeID, backends.ErrPrecondition)
		}
	}
	if v.Device != nil && v.Device.ReadOnly && !want.readsOnly() {
		return fmt.Errorf("nodes %q read it through a device that refuses writes; detach them first: %w", v.NodeIDs(), backends.ErrPrecondition)
	}
	return nil
}

func (t Attachment) singleWriter() bool {
	return !t.ReadOnly && access.SingleWriter(t.Capability.Mode)
}

// Detach takes a volume away from a node, or from all nodes when nodeID is
// empty. A volume that does not exist or is not attached is no error.
func (a *Array) Detach(ctx context.Context, volumeID, nodeID string) error {
	v, ok := a.volumes.get(volumeID)
	if !ok {
		return nil
	}
	next := v.clone()
	next.Attachments = slices.DeleteFunc(next.Attachments, func(t Attachment) bool { return nodeID == "" || t.NodeID == nodeID })
	if len(next.Attachments) < len(v.Attachments) {
		if len(next.Attachments) == 0 {
			next.Device = nil
		}
		// The record comes first: a device that no record explains is freed at
		// the next start.
		if err := a.put(ctx, next); err != nil {
			return fmt.Errorf("detach: %w", err)
		}
		if next.Device == nil {
			a.found(v.ID)
			a.linger(v)
		}
		for _, t := range v.Attachments {
			if _, kept := next.attachment(t.NodeID); !kept {
				a.uncountNode(t.NodeID)
			}
		}
		if err := step.Done(ctx, "array.attachment.removed"); err != nil {
			return fmt.Errorf("detach volume %s: %w", volumeID, err)
		}
	}
	if len(next.Attachments) > 0 {
		return nil
	}
	if err := a.finishDetach(ctx, next); err != nil {
		return fmt.Errorf("detach volume %s: %w", volumeID, err)
	}
	return nil
}

func (a *Array) linger(v *Volume) {
	if v.Device == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lingering[v.ID] = *v.Device
}

// finishDetach frees the device of a volume that has no attachment any more.
func (a *Array) finishDetach(ctx context.Context, v *Volume) error {
	a.mu.Lock()
	device, ok := a.lingering[v.ID]
	a.mu.Unlock()
	if !ok {
		return nil
	}
	if err := a.backend.Detach(ctx, a.bytesOf(v), device); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.lingering, v.ID)
	return step.Done(ctx, "array.attachment.released")
}

// AttachLocal attaches a volume for a node that stages it, for drivers without
// ControllerPublishVolume.
func (a *Array) AttachLocal(ctx context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error) {
	unlock, err := a.lock(ctx, volumeID)
	if err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", volumeID, err)
	}
	defer unlock()
	return a.Attach(ctx, volumeID, Attachment{NodeID: nodeID, ReadOnly: readOnly, Local: true})
}

// DetachLocal undoes AttachLocal.
func (a *Array) DetachLocal(ctx context.Context, volumeID, nodeID string) error {
	unlock, err := a.lock(ctx, volumeID)
	if err != nil {
		return fmt.Errorf("detach volume %s: %w", volumeID, err)
	}
	defer unlock()
	return a.Detach(ctx, volumeID, nodeID)
}

// ReconcileLocal detaches what a node attached by itself and has not staged any
// more, as it does after it cleaned up while the array was away.
func (a *Array) ReconcileLocal(ctx context.Context, nodeID string, staged []string) error {
	var errs []error
	for _, v := range a.volumes.all() {
		if t, ok := v.attachment(nodeID); !ok || !t.Local || slices.Contains(staged, v.ID) {
			continue
		}
		errs = append(errs, a.DetachLocal(ctx, v.ID, nodeID))
	}
	return errors.Join(errs...)
}
