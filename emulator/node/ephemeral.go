package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// EphemeralRequest is a NodePublishVolume of an inline volume, which the node
// makes and removes by itself.
type EphemeralRequest struct {
	VolumeID   string
	Path       string
	SizeBytes  int64
	Capability access.Capability
	ReadOnly   bool
}

// PublishEphemeral makes an inline volume and publishes it. A backend without
// them is backends.ErrInvalid.
func (n *Node) PublishEphemeral(ctx context.Context, req EphemeralRequest) error {
	if err := n.publishEphemeral(ctx, req); err != nil {
		return fmt.Errorf("publish inline volume %s on node %s: %w", req.VolumeID, n.Name, err)
	}
	return nil
}

func (n *Node) publishEphemeral(ctx context.Context, req EphemeralRequest) error {
	backend, ok := n.Backend.(backends.EphemeralNode)
	if !ok {
		return fmt.Errorf("this driver's volumes outlive their pods; use a claim: %w", backends.ErrInvalid)
	}
	if req.Capability.Block {
		return fmt.Errorf("inline volumes are file systems: %w", backends.ErrInvalid)
	}
	want := Target{Path: req.Path, ReadOnly: req.ReadOnly, Capability: req.Capability}
	v, ok := n.get(req.VolumeID)
	if ok && !v.Ephemeral {
		return fmt.Errorf("a volume that is staged has that id: %w", backends.ErrPrecondition)
	}
	if ok {
		if err := n.admit(v, want); err != nil {
			return err
		}
	}
	if ok && v.Whole {
		// After a reboot the bytes are gone, as is the life of an inline
		// volume: it is made anew.
		if staged, err := n.Backend.IsStaged(ctx, v.Staged); err != nil {
			return err
		} else if staged {
			return n.bind(ctx, v, want)
		}
	}
	v, err := n.makeEphemeral(ctx, backend, req)
	if err != nil {
		return err
	}
	if err := n.bind(ctx, v, want); err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.removeUnused(ctx, v.ID) }))
	}
	return nil
}

func (n *Node) makeEphemeral(ctx context.Context, backend backends.EphemeralNode, req EphemeralRequest) (*Volume, error) {
	dir, err := n.ownDir(req.VolumeID)
	if err != nil {
		return nil, err
	}
	v := &Volume{
		ID: req.VolumeID, Capability: req.Capability, StagingPath: dir, Ephemeral: true,
		Staged: backends.Staged{VolumeID: req.VolumeID, Path: dir, Block: req.Capability.Block},
	}
	if err := n.put(ctx, v); err != nil {
		return nil, err
	}
	err = step.Done(ctx, "node.inline.recorded")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.forget(ctx, v.ID) }))
	}
	staged, err := backend.MakeEphemeral(ctx, backends.EphemeralRequest{
		VolumeID: req.VolumeID, SizeBytes: req.SizeBytes, Dir: dir,
		FSType: req.Capability.FSType, MountFlags: req.Capability.MountFlags, Group: req.Capability.Group,
	})
	whole := v.clone()
	if err == nil {
		err = step.Done(ctx, "node.inline.made")
	}
	if err == nil {
		whole.Staged, whole.Whole = staged, true
		err = n.put(ctx, whole)
	}
	if err != nil {
		return nil, errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.removeEphemeral(ctx, v) }))
	}
	return whole, step.Done(ctx, "node.inline.ready")
}

func (n *Node) removeEphemeral(ctx context.Context, v *Volume) error {
	backend, ok := n.Backend.(backends.EphemeralNode)
	if !ok {
		return fmt.Errorf("remove inline volume %s: this backend has none: %w", v.ID, backends.ErrPrecondition)
	}
	if err := backend.RemoveEphemeral(ctx, v.Staged); err != nil {
		return err
	}
	if err := step.Done(ctx, "node.inline.removed"); err != nil {
		return err
	}
	if err := removeOwnDir(v.StagingPath); err != nil {
		return err
	}
	return n.forget(ctx, v.ID)
}
