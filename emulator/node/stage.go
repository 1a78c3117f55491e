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

// StageRequest is a NodeStageVolume.
type StageRequest struct {
	VolumeID       string
	PublishContext map[string]string
	Path           string
	Capability     access.Capability
}

// Stage makes a volume usable on the node. Staged in the same way already is no
// error; staged with another capability at the same path is
// backends.ErrExists, at another path backends.ErrPrecondition.
func (n *Node) Stage(ctx context.Context, req StageRequest) error {
	if err := n.checkLost(req.VolumeID); err != nil {
		return fmt.Errorf("stage volume %s on node %s: %w", req.VolumeID, n.Name, err)
	}
	if v, ok := n.get(req.VolumeID); ok {
		done, err := n.stagedAlready(ctx, v, req)
		if done || err != nil {
			return err
		}
	}
	if err := n.stage(ctx, req); err != nil {
		return fmt.Errorf("stage volume %s on node %s: %w", req.VolumeID, n.Name, err)
	}
	return nil
}

// stagedAlready says whether nothing is left to do for a volume with a record.
func (n *Node) stagedAlready(ctx context.Context, v *Volume, req StageRequest) (bool, error) {
	refuse := func(what string, kind error) (bool, error) {
		return false, fmt.Errorf("stage volume %s on node %s: %s: %w", v.ID, n.Name, what, kind)
	}
	staged := v.Whole
	if v.Whole && !v.Ephemeral {
		// After a reboot the record is all that is left.
		var err error
		if staged, err = n.Backend.IsStaged(ctx, v.Staged); err != nil {
			return refuse("ask the kernel", err)
		}
	}
	switch {
	case v.Ephemeral:
		return refuse("an inline volume has that id", backends.ErrPrecondition)
	case v.Whole && !staged:
		return false, nil
	case v.StagingPath != req.Path && v.Whole:
		return refuse(fmt.Sprintf("it is staged at %q; unstage it there first", v.StagingPath), backends.ErrPrecondition)
	case !v.Capability.Same(req.Capability) && v.Whole:
		return refuse(fmt.Sprintf("it is staged as %s, not as %s", v.Capability, req.Capability), backends.ErrExists)
	case !v.Whole:
		// A process was killed while it staged, or staging failed: what it
		// left is undone unless the same is asked for again.
		if v.StagingPath == req.Path && v.Capability.Same(req.Capability) {
			return false, nil
		}
		return false, n.Unstage(ctx, v.ID, v.StagingPath)
	}
	return true, nil
}

// stage records, attaches where callers don't, and stages.
func (n *Node) stage(ctx context.Context, req StageRequest) error {
	v := &Volume{
		ID: req.VolumeID, Capability: req.Capability, StagingPath: req.Path, Local: !n.Attaches, Demands: req.PublishContext[access.SecretsKey] != "",
		ReadOnly: access.ReaderOnly(req.Capability.Mode) || req.PublishContext[access.ReadOnlyKey] == "true",
		Staged:   backends.Staged{VolumeID: req.VolumeID, Path: req.Path, Block: req.Capability.Block},
	}
	if old, ok := n.get(req.VolumeID); ok {
		v.Targets = old.Targets
	}
	if err := n.put(ctx, v); err != nil {
		return err
	}
	err := step.Done(ctx, "node.volume.staging")
	if err == nil && !n.Stages {
		err = os.MkdirAll(req.Path, 0o700)
	}
	var publishContext map[string]string
	if err == nil {
		publishContext, err = n.reach(ctx, v, req.PublishContext)
	}
	if err != nil {
		return errors.Join(err, n.undoStage(ctx, v))
	}
	if err := access.CheckTypes(publishContext, req.Capability); err != nil {
		return errors.Join(err, n.undoStage(ctx, v))
	}
	whole := v.clone()
	whole.Staged, err = n.Backend.Stage(ctx, backends.StageRequest{
		VolumeID: req.VolumeID, PublishContext: publishContext, Path: req.Path, Block: req.Capability.Block,
		FSType: req.Capability.FSType, MountFlags: req.Capability.MountFlags, Group: req.Capability.Group, ReadOnly: v.ReadOnly,
	})
	if errors.Is(err, backends.ErrNotFound) {
		err = n.explain(ctx, v.ID, err)
	}
	if err == nil {
		err = step.Done(ctx, "node.volume.mounted")
	}
	if err == nil {
		whole.Whole = true
		err = n.put(ctx, whole)
	}
	if err != nil {
		return errors.Join(err, n.undoStage(ctx, v))
	}
	return step.Done(ctx, "node.volume.staged")
}

// reach returns the publish context of a volume, attaching it where callers
// don't.
func (n *Node) reach(ctx context.Context, v *Volume, given map[string]string) (map[string]string, error) {
	if of := given[access.VolumeKey]; !v.Local && of != "" && of != v.ID {
		return nil, n.explain(ctx, v.ID, fmt.Errorf("the publish context is that of volume %s", of))
	}
	if !v.Local {
		return given, nil
	}
	publishContext, err := n.Array.AttachLocal(ctx, v.ID, n.Name, v.ReadOnly)
	if err != nil {
		return nil, err
	}
	return publishContext, step.Done(ctx, "node.volume.attached")
}

// explain tells a volume that does not exist from one that is not attached.
func (n *Node) explain(ctx context.Context, id string, notFound error) error {
	if _, err := n.Array.SizeOf(ctx, id); errors.Is(err, backends.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w", notFound.Error(), backends.ErrPrecondition)
}

// undoStage takes back what a failed attempt did. Targets of before, which may
// still be mounted, stay on record.
func (n *Node) undoStage(ctx context.Context, v *Volume) error {
	return undo.Run(ctx, func(ctx context.Context) error {
		if err := n.unmount(ctx, v); err != nil {
			return err
		}
		if len(v.Targets) > 0 {
			return n.put(ctx, v)
		}
		return n.forget(ctx, v.ID)
	})
}

// Unstage undoes Stage. A volume that is not staged is no error; one that is
// still published is backends.ErrPrecondition.
func (n *Node) Unstage(ctx context.Context, volumeID, path string) error {
	v, ok := n.get(volumeID)
	if !ok || v.Ephemeral || v.StagingPath != path {
		return n.checkLost(volumeID)
	}
	if err := n.checkUnpublished(ctx, v); err != nil {
		return fmt.Errorf("unstage volume %s on node %s: %w", volumeID, n.Name, err)
	}
	if err := n.unstage(ctx, v); err != nil {
		return fmt.Errorf("unstage volume %s on node %s: %w", volumeID, n.Name, err)
	}
	return nil
}

// checkUnpublished refuses to unstage a volume that the kernel still shows at a
// target. Targets that went with a reboot don't count.
func (n *Node) checkUnpublished(ctx context.Context, v *Volume) error {
	for _, t := range v.Targets {
		published, err := n.Backend.IsPublished(ctx, v.Staged, t.Path)
		if err != nil {
			return err
		}
		if published {
			return fmt.Errorf("it is published at %q; call NodeUnpublishVolume first: %w", t.Path, backends.ErrPrecondition)
		}
	}
	return nil
}

func (n *Node) unstage(ctx context.Context, v *Volume) error {
	if err := n.unmount(ctx, v); err != nil {
		return err
	}
	// It is gone, whether or not the caller still waits.
	return n.forget(context.WithoutCancel(ctx), v.ID)
}

// unmount takes a staged volume away and leaves its record.
func (n *Node) unmount(ctx context.Context, v *Volume) error {
	if err := n.Backend.Unstage(ctx, v.Staged); err != nil {
		// Nothing was ever mounted on a path that is refused.
		if v.Whole || !errors.Is(err, backends.ErrInvalid) {
			return err
		}
	}
	if err := step.Done(ctx, "node.volume.unmounted"); err != nil {
		return err
	}
	if v.Local {
		// The array learns from the node's next session what is still staged,
		// so that a node can clean up while the array is away.
		if err := n.Array.DetachLocal(ctx, v.ID, n.Name); err != nil && !errors.Is(err, backends.ErrUnavailable) {
			return err
		}
		if err := step.Done(ctx, "node.volume.detached"); err != nil {
			return err
		}
	}
	if n.Stages {
		return nil
	}
	return removeOwnDir(v.StagingPath)
}
