package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

// Node is the half of a node. A file system is a plain directory at its target
// and a raw block device an empty file; the staging path is a directory. It is
// safe for concurrent use.
type Node struct {
	backend *Backend
	notes   *notes
}

var (
	_ backends.Node          = (*Node)(nil)
	_ backends.EphemeralNode = (*Node)(nil)
)

// Node makes the half of a node. What it makes is noted in c.Dir, so that a
// later process can take it away; without a directory it forgets.
func (b *Backend) Node(c backends.NodeConfig) (backends.Node, error) {
	notes, err := openNotes(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("make memory node in %s: %w", c.Dir, err)
	}
	return &Node{backend: b, notes: notes}, nil
}

// Stage checks the publish context and makes the staging path, if it is
// missing.
func (n *Node) Stage(ctx context.Context, r backends.StageRequest) (backends.Staged, error) {
	s, err := n.stage(ctx, r)
	if err != nil {
		return backends.Staged{}, fmt.Errorf("stage volume %s at %s: %w", r.VolumeID, r.Path, err)
	}
	return s, nil
}

func (n *Node) stage(ctx context.Context, r backends.StageRequest) (s backends.Staged, err error) {
	if err := errors.Join(ctx.Err(), check(r.Path)); err != nil {
		return s, err
	}
	s = backends.Staged{VolumeID: r.VolumeID, Path: r.Path, Block: r.Block, ReadOnly: r.ReadOnly}
	if s.DeviceID, s.SizeBytes, err = n.reach(r); err != nil {
		return s, err
	}
	if !r.Block {
		if err := checkType(r.FSType); err != nil {
			return s, err
		}
		if s.Options, err = optionsOf(r.MountFlags, r.Group); err != nil {
			return s, err
		}
		s.FSType = r.FSType
	}
	p := note{Path: r.Path, VolumeID: r.VolumeID, Staged: true, DeviceID: s.DeviceID}
	if have, ok := n.notes.at(r.Path); ok {
		if have.VolumeID != p.VolumeID || !have.Staged || have.DeviceID != p.DeviceID {
			return s, fmt.Errorf("volume %s is there, attached as %s; unstage it first: %w", have.VolumeID, have.DeviceID, backends.ErrPrecondition)
		}
	}
	return s, n.place(ctx, p, false)
}

// reach finds what stands for the device of a publish context.
func (n *Node) reach(r backends.StageRequest) (attachment string, sizeBytes int64, err error) {
	attachment = r.PublishContext[AttachmentKey]
	if attachment == "" {
		return "", 0, fmt.Errorf("it is not attached: its publish context has no %s: %w", AttachmentKey, backends.ErrNotFound)
	}
	sizeBytes, err = strconv.ParseInt(r.PublishContext[SizeKey], 10, 64)
	if err != nil || sizeBytes < 0 {
		return "", 0, fmt.Errorf("publish context has no size in %s: %w", SizeKey, backends.ErrInvalid)
	}
	current, attached, ok := n.backend.look(r.VolumeID)
	if ok && attached != attachment {
		return "", 0, fmt.Errorf("it is not attached as %s: it was detached: %w", attachment, backends.ErrNotFound)
	}
	return attachment, max(sizeBytes, current), nil
}

// place notes p and makes it, unless it is there.
func (n *Node) place(ctx context.Context, p note, block bool) error {
	there, err := find(p.Path, block)
	if err != nil {
		return err
	}
	have, noted := n.notes.at(p.Path)
	p.Made = !there || (noted && have.Made)
	if err := n.notes.put(p); err != nil || there {
		return err
	}
	if err := step.Done(ctx, "memory.place.noted"); err != nil {
		return errors.Join(err, n.notes.drop(p.Path))
	}
	if err := build(p.Path, block, p.ReadOnly); err != nil {
		return errors.Join(err, n.notes.drop(p.Path))
	}
	return step.Done(ctx, "memory.place.made")
}

// IsStaged asks for the staging path and for what was noted of it.
func (n *Node) IsStaged(_ context.Context, s backends.Staged) (bool, error) {
	if _, ok := n.notes.staging(s); !ok {
		return false, nil
	}
	return isAt(s.Path, false)
}

// Unstage removes the staging path if Stage made it. What the caller keeps in it
// stays, and the path with it.
func (n *Node) Unstage(ctx context.Context, s backends.Staged) error {
	if err := n.unstage(ctx, s); err != nil {
		return fmt.Errorf("unstage volume %s at %s: %w", s.VolumeID, s.Path, err)
	}
	return nil
}

func (n *Node) unstage(ctx context.Context, s backends.Staged) error {
	if err := errors.Join(ctx.Err(), check(s.Path)); err != nil {
		return err
	}
	p, ok := n.notes.staging(s)
	if !ok {
		return nil
	}
	there, err := isAt(s.Path, false)
	if err != nil {
		return err
	}
	if p.Made && there {
		// "Exists" is how package os says "not empty".
		if err := os.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := step.Done(ctx, "memory.place.removed"); err != nil {
		return err
	}
	return n.notes.drop(s.Path)
}

// Hold has nothing to hold still: no bytes are kept.
func (*Node) Hold(ctx context.Context, s backends.Staged, _ backends.Hold) (func() error, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("hold volume %s: %w", s.VolumeID, err)
	}
	return func() error { return nil }, nil
}

// Recover has nothing to undo.
func (*Node) Recover(context.Context, backends.Staged) error { return nil }

// Close has nothing to free; volumes stay.
func (*Node) Close() error { return nil }

// EphemeralBytes is the size of an ephemeral volume that names none: 64 MiB, as
// with package tmpfs.
const EphemeralBytes = 64 << 20

// ephemeralID stands in place of an attachment's id.
const ephemeralID = "ephemeral"

// MakeEphemeral makes a volume out of its request alone.
func (n *Node) MakeEphemeral(ctx context.Context, r backends.EphemeralRequest) (backends.Staged, error) {
	s, err := n.makeEphemeral(ctx, r)
	if err != nil {
		return backends.Staged{}, fmt.Errorf("make ephemeral volume %s: %w", r.VolumeID, err)
	}
	return s, nil
}

func (n *Node) makeEphemeral(ctx context.Context, r backends.EphemeralRequest) (s backends.Staged, err error) {
	if err := errors.Join(ctx.Err(), check(r.Dir), checkType(r.FSType)); err != nil {
		return s, err
	}
	s = backends.Staged{VolumeID: r.VolumeID, Path: r.Dir, FSType: r.FSType, DeviceID: ephemeralID, SizeBytes: r.SizeBytes}
	switch {
	case r.SizeBytes < 0:
		return s, fmt.Errorf("size of %d bytes: %w", r.SizeBytes, backends.ErrInvalid)
	case r.SizeBytes == 0:
		s.SizeBytes = EphemeralBytes
	}
	if s.Options, err = optionsOf(r.MountFlags, r.Group); err != nil {
		return s, err
	}
	return s, n.place(ctx, note{Path: r.Dir, VolumeID: r.VolumeID, Staged: true, DeviceID: ephemeralID}, false)
}

// RemoveEphemeral undoes MakeEphemeral.
func (n *Node) RemoveEphemeral(ctx context.Context, s backends.Staged) error {
	if err := n.unstage(ctx, s); err != nil {
		return fmt.Errorf("remove ephemeral volume %s: %w", s.VolumeID, err)
	}
	return nil
}

// readOnly says whether a publication refuses writes.
func readOnly(s backends.Staged, r backends.PublishRequest) bool {
	return s.ReadOnly || r.ReadOnly || isReadOnly(s.Options) || isReadOnly(strings.Join(r.MountFlags, ","))
}
