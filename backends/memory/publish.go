package memory

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

// Publish makes the target: a directory, or a file for raw block. One that
// exists already is used as it is, and stays when it is unpublished. A target
// that is made for reading only refuses writes of processes without privileges.
func (n *Node) Publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if err := n.publish(ctx, s, r); err != nil {
		return fmt.Errorf("publish volume %s at %s: %w", s.VolumeID, r.Path, err)
	}
	return nil
}

func (n *Node) publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if err := errors.Join(ctx.Err(), check(r.Path), checkFlags(r.MountFlags)); err != nil {
		return err
	}
	if s.Block && len(r.MountFlags) > 0 {
		return fmt.Errorf("a raw block volume takes no mount options: %w", backends.ErrInvalid)
	}
	staged, err := n.IsStaged(ctx, s)
	if err != nil {
		return err
	}
	if !staged {
		return fmt.Errorf("it is not staged at %s: %w", s.Path, backends.ErrPrecondition)
	}
	p := note{Path: r.Path, VolumeID: s.VolumeID, ReadOnly: readOnly(s, r)}
	if have, ok := n.notes.at(r.Path); ok {
		switch {
		case have.Staged || have.VolumeID != p.VolumeID:
			return fmt.Errorf("volume %s is there: %w", have.VolumeID, backends.ErrExists)
		case have.ReadOnly != p.ReadOnly:
			return fmt.Errorf("it is published there with read-only %t: %w", have.ReadOnly, backends.ErrExists)
		}
	}
	if err := n.place(ctx, p, s.Block); err != nil {
		return err
	}
	return n.shareTarget(s, p)
}

// shareTarget lets the volume mount group write to a target that was made here.
func (n *Node) shareTarget(s backends.Staged, p note) error {
	gid, grouped := groupOf(s.Options)
	have, _ := n.notes.at(p.Path)
	if !grouped || !have.Made || p.ReadOnly || s.Block {
		return nil
	}
	return share(p.Path, gid)
}

// IsPublished asks for the target and for what was noted of it.
func (n *Node) IsPublished(_ context.Context, s backends.Staged, path string) (bool, error) {
	if _, ok := n.notes.target(s, path); !ok {
		return false, nil
	}
	return isAt(path, s.Block)
}

// Unpublish removes the target, with what a workload wrote there, if Publish
// made it. It follows no symbolic link, at the target or below it.
func (n *Node) Unpublish(ctx context.Context, s backends.Staged, path string) error {
	if err := n.unpublish(ctx, s, path); err != nil {
		return fmt.Errorf("unpublish volume %s at %s: %w", s.VolumeID, path, err)
	}
	return nil
}

func (n *Node) unpublish(ctx context.Context, s backends.Staged, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, ok := n.notes.target(s, path)
	if !ok {
		return nil
	}
	// A link in the place of the target is not what was made, and stays.
	if err := checkLinks(filepath.Dir(path)); err != nil {
		return err
	}
	if p.Made {
		if err := raze(ctx, path, s.Block, p.ReadOnly); err != nil {
			return err
		}
	}
	if err := step.Done(ctx, "memory.place.removed"); err != nil {
		return err
	}
	return n.notes.drop(path)
}

// Stats reports on the volume at its staging path or at a target.
// backends.ErrNotFound is returned when it is not there. The size is that of
// the record, and nothing of it is used.
func (n *Node) Stats(ctx context.Context, s backends.Staged, path string) (backends.Stats, error) {
	there, err := n.IsPublished(ctx, s, path)
	if path == s.Path {
		there, err = n.IsStaged(ctx, s)
	}
	if err == nil && !there {
		err = fmt.Errorf("it is not there: %w", backends.ErrNotFound)
	}
	if err != nil {
		return backends.Stats{}, fmt.Errorf("measure volume %s at %s: %w", s.VolumeID, path, err)
	}
	size := n.size(s)
	if s.Block {
		return backends.Stats{Block: true, TotalBytes: size, AvailableBytes: -1, UsedBytes: -1}, nil
	}
	return backends.Stats{TotalBytes: size, AvailableBytes: size}, nil
}

// Expand returns the size that the array gave the volume, if that lives in this
// process, else that at the time of staging.
func (n *Node) Expand(ctx context.Context, s backends.Staged) (int64, error) {
	staged, err := n.IsStaged(ctx, s)
	if err == nil && !staged {
		err = fmt.Errorf("it is not staged at %s: %w", s.Path, backends.ErrPrecondition)
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s: %w", s.VolumeID, err)
	}
	return n.size(s), nil
}

func (n *Node) size(s backends.Staged) int64 {
	current, _, _ := n.backend.look(s.VolumeID)
	return max(current, s.SizeBytes)
}
