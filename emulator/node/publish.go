package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// PublishRequest is a NodePublishVolume.
type PublishRequest struct {
	VolumeID       string
	PublishContext map[string]string
	// StagingPath is where the caller staged the volume; empty for drivers
	// without NodeStageVolume.
	StagingPath string
	Path        string
	Capability  access.Capability
	ReadOnly    bool
}

// Publish makes a staged volume visible at a path. The table of the
// specification's NodePublishVolume decides what a second publication gets.
func (n *Node) Publish(ctx context.Context, req PublishRequest) error {
	if err := n.publish(ctx, req); err != nil {
		return fmt.Errorf("publish volume %s on node %s: %w", req.VolumeID, n.Name, err)
	}
	return nil
}

func (n *Node) publish(ctx context.Context, req PublishRequest) error {
	if !n.Stages {
		var err error
		if req.StagingPath, err = n.ownDir(req.VolumeID); err != nil {
			return err
		}
		if err := n.stageHere(ctx, req); err != nil {
			return err
		}
	}
	err := n.publishStaged(ctx, req)
	if err != nil && !n.Stages {
		err = errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.removeUnused(ctx, req.VolumeID) }))
	}
	return err
}

func (n *Node) publishStaged(ctx context.Context, req PublishRequest) error {
	v, err := n.usable(ctx, req)
	if err != nil {
		return err
	}
	if req.Path == v.StagingPath {
		return fmt.Errorf("the target %q is where it is staged: %w", req.Path, backends.ErrInvalid)
	}
	want := Target{Path: req.Path, ReadOnly: req.ReadOnly, Capability: req.Capability}
	if err := n.admit(v, want); err != nil {
		return err
	}
	return n.bind(ctx, v, want)
}

// stageHere stages a volume of a driver whose callers don't, in a directory of
// the node's own.
func (n *Node) stageHere(ctx context.Context, req PublishRequest) error {
	err := n.Stage(ctx, StageRequest{
		VolumeID: req.VolumeID, PublishContext: req.PublishContext, Path: req.StagingPath, Capability: req.Capability,
	})
	if v, ok := n.get(req.VolumeID); ok && errors.Is(err, backends.ErrExists) {
		// It is the target that exists, or another one is in the way.
		if _, same := v.target(req.Path); !same {
			return fmt.Errorf("%s: %w", err.Error(), backends.ErrPrecondition)
		}
	}
	return err
}

// ownDir is the node's own directory for a volume that callers do not stage.
func (n *Node) ownDir(volumeID string) (string, error) {
	dir, err := n.StageDir()
	return filepath.Join(dir, recordID(volumeID)), err
}

// removeOwnDir removes a directory that ownDir named, empty by now.
func removeOwnDir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// usable returns a volume's record when the kernel shows the volume at the
// staging path that the request names.
func (n *Node) usable(ctx context.Context, req PublishRequest) (*Volume, error) {
	if req.StagingPath == "" {
		return nil, fmt.Errorf("no staging path is given, but this driver stages volumes: %w", backends.ErrPrecondition)
	}
	v, ok := n.get(req.VolumeID)
	if !ok || !v.Whole {
		return nil, n.missing(ctx, req.VolumeID)
	}
	if v.StagingPath != req.StagingPath {
		return nil, fmt.Errorf("it is staged at %q, not at %q: %w", v.StagingPath, req.StagingPath, backends.ErrPrecondition)
	}
	if v.Capability.Block != req.Capability.Block || (req.Capability.FSType != "" && v.Staged.FSType != "" && req.Capability.FSType != v.Staged.FSType) {
		return nil, fmt.Errorf("it is staged as %s, not as %s: %w", v.Capability, req.Capability, backends.ErrPrecondition)
	}
	staged, err := n.Backend.IsStaged(ctx, v.Staged)
	if err != nil {
		return nil, err
	}
	if !staged {
		return nil, fmt.Errorf("it was staged at %q and is not there any more, as after a reboot; call NodeStageVolume again: %w", v.StagingPath, backends.ErrPrecondition)
	}
	return v, nil
}

// admit is the table of second publications (CSI, "NodePublishVolume").
func (n *Node) admit(v *Volume, want Target) error {
	for _, have := range v.Targets {
		switch {
		case have.Path == want.Path && !have.same(want):
			return fmt.Errorf("it is published at %q as %s, readonly %t: %w", have.Path, have.Capability, have.ReadOnly, backends.ErrExists)
		case have.Path == want.Path, n.SharedSingleNode:
		case access.MultiTarget(want.Capability.Mode) && access.MultiTarget(have.Capability.Mode):
		default:
			return fmt.Errorf("it is published at %q, and %s allows one target only: %w", have.Path, want.Capability.Mode, backends.ErrPrecondition)
		}
	}
	return nil
}

// bind records and makes a publication.
func (n *Node) bind(ctx context.Context, v *Volume, want Target) error {
	next := v
	_, before := v.target(want.Path)
	if !before {
		next = v.clone()
		next.Targets = append(next.Targets, want)
		if err := n.put(ctx, next); err != nil {
			return err
		}
	} else if published, err := n.Backend.IsPublished(ctx, v.Staged, want.Path); err != nil || published {
		return err
	}
	err := step.Done(ctx, "node.target.recorded")
	if err == nil {
		err = n.Backend.Publish(ctx, v.Staged, backends.PublishRequest{
			Path: want.Path, ReadOnly: want.ReadOnly || v.ReadOnly, MountFlags: want.Capability.MountFlags,
		})
	}
	if err == nil {
		return step.Done(ctx, "node.target.published")
	}
	if before {
		// What was on record before may still be there, in another way.
		return err
	}
	return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.put(ctx, without(next, want.Path)) }))
}

func without(v *Volume, path string) *Volume {
	next := v.clone()
	next.Targets = slices.DeleteFunc(next.Targets, func(t Target) bool { return t.Path == path })
	return next
}

// Unpublish undoes Publish. A target where nothing of ours is, is no error: a
// pod whose unpublish was answered once must not hang on the second
// (kubernetes/kubernetes#90752).
func (n *Node) Unpublish(ctx context.Context, volumeID, path string) error {
	v, ok := n.get(volumeID)
	if !ok {
		return n.checkLost(volumeID)
	}
	var err error
	if _, ok := v.target(path); ok {
		err = n.unpublish(ctx, v, path)
	} else {
		err = n.removeUnused(ctx, volumeID)
	}
	if err != nil {
		return fmt.Errorf("unpublish volume %s at %q on node %s: %w", volumeID, path, n.Name, err)
	}
	return nil
}

func (n *Node) unpublish(ctx context.Context, v *Volume, path string) error {
	if err := n.Backend.Unpublish(ctx, v.Staged, path); err != nil {
		return err
	}
	if err := step.Done(ctx, "node.target.unpublished"); err != nil {
		return err
	}
	// The target is gone. A record that still has it, only because the caller has
	// given up, would answer some calls as published and others as not.
	if err := n.put(context.WithoutCancel(ctx), without(v, path)); err != nil {
		return err
	}
	if err := step.Done(ctx, "node.target.forgotten"); err != nil {
		return err
	}
	return n.removeUnused(ctx, v.ID)
}

// removeUnused takes away a volume that lives as long as its publications, and
// has none: an inline one, or one that nobody else stages. A process that was
// killed between staging and publishing leaves such a volume too.
func (n *Node) removeUnused(ctx context.Context, volumeID string) error {
	v, ok := n.get(volumeID)
	switch {
	case !ok || len(v.Targets) > 0:
		return nil
	case v.Ephemeral:
		return n.removeEphemeral(ctx, v)
	case !n.Stages:
		return n.unstage(ctx, v)
	}
	return nil
}
