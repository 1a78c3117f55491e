//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// Stats reports on the volume seen at path. backends.ErrNotFound is returned
// when it is not seen there.
func (n *node) Stats(ctx context.Context, s backends.Staged, path string) (backends.Stats, error) {
	stats, err := n.stats(ctx, s, path)
	if err != nil {
		return backends.Stats{}, fmt.Errorf("measure volume %s at %s: %w", s.VolumeID, path, err)
	}
	return stats, nil
}

func (n *node) stats(ctx context.Context, s backends.Staged, path string) (backends.Stats, error) {
	seen, err := n.IsPublished(ctx, s, path)
	if s.Block && path == s.Path { // nothing is mounted there
		seen, err = n.IsStaged(ctx, s)
	}
	if err != nil {
		return backends.Stats{}, err
	}
	if !seen {
		return backends.Stats{}, fmt.Errorf("it is not there: %w", backends.ErrNotFound)
	}
	if !s.Block {
		return nodemount.Stats(path)
	}
	d, err := n.device(ctx, s)
	if err != nil {
		return backends.Stats{}, err
	}
	size, err := d.Size()
	if errors.Is(err, loopdev.ErrNotBound) { // detached since it was found
		err = fmt.Errorf("%w: %w", err, backends.ErrPrecondition)
	}
	return backends.Stats{Block: true, TotalBytes: size, AvailableBytes: -1, UsedBytes: -1}, err
}

// Expand grows the file system to the size that the device has.
func (n *node) Expand(ctx context.Context, s backends.Staged) (int64, error) {
	size, err := n.expand(ctx, s)
	if err != nil && n.dead(s) { // its I/O fails in every way
		err = fmt.Errorf("its device was detached: %w: %w", err, backends.ErrPrecondition)
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s: %w", s.VolumeID, err)
	}
	return size, nil
}

func (n *node) expand(ctx context.Context, s backends.Staged) (int64, error) {
	d, err := n.device(ctx, s)
	if err != nil {
		return 0, err
	}
	size, err := d.Size()
	if err != nil {
		return 0, err
	}
	if s.Block {
		return size, n.readers.refresh(ctx, s.DeviceID)
	}
	return size, n.fill(ctx, s, size)
}

// fill grows the mounted file system of s to size bytes.
func (n *node) fill(ctx context.Context, s backends.Staged, size int64) error {
	staged, err := n.mountedAt(s, s.Path)
	if err != nil {
		return err
	}
	if !staged {
		return fmt.Errorf("its file system is not mounted at %s: %w", s.Path, backends.ErrPrecondition)
	}
	t, err := filesystem.ParseType(s.FSType)
	if err != nil {
		return err
	}
	content, err := filesystem.ProbeMounted(ctx, s.Path, t)
	if err != nil || content.Fills(size) {
		return err
	}
	options, err := mount.ParseOptions([]string{s.Options})
	if err != nil {
		return err
	}
	if options.ReadOnly() {
		return fmt.Errorf("its file system is mounted read-only; it grows when it is staged for writing: %w", backends.ErrPrecondition)
	}
	err = filesystem.GrowMounted(ctx, s.Path, t, size)
	if errors.Is(err, kernel.ErrNotSupported) {
		return fmt.Errorf("the file system cannot grow while it is mounted and will when the volume is staged again: %w: %w", err, backends.ErrPrecondition)
	}
	if err != nil {
		return err
	}
	return step.Done(ctx, "loop.filesystem.grown")
}

// Hold freezes the file system of s, which holds still all who write to it, or
// flushes the device of a raw block volume, whose writers cannot be stopped:
// where that has to be, it is backends.ErrPrecondition.
func (n *node) Hold(ctx context.Context, s backends.Staged, h backends.Hold) (func() error, error) {
	release, err := n.hold(ctx, s, h)
	if err != nil {
		return nil, fmt.Errorf("hold volume %s: %w", s.VolumeID, err)
	}
	return release, nil
}

func (n *node) hold(ctx context.Context, s backends.Staged, h backends.Hold) (func() error, error) {
	if s.Block && h.Exact && h.Published {
		return nil, fmt.Errorf("nothing stops the writers of a raw block volume; unpublish it first, or create it with the parameter breakable: %w", backends.ErrPrecondition)
	}
	if s.Block {
		d, err := n.device(ctx, s)
		if err != nil {
			return nil, err
		}
		return func() error { return nil }, d.Flush()
	}
	staged, err := n.mountedAt(s, s.Path)
	if err != nil {
		return nil, err
	}
	if !staged {
		return nil, fmt.Errorf("its file system is not mounted at %s: %w", s.Path, backends.ErrPrecondition)
	}
	frozen, err := n.freezer.Freeze(ctx, s.Path)
	if errors.Is(err, freeze.ErrFrozen) {
		return nil, fmt.Errorf("%w: %w", err, backends.ErrHeld)
	}
	if err != nil {
		return nil, err
	}
	return frozen.Thaw, nil
}

// Recover thaws the file system of s, if it is frozen.
func (n *node) Recover(_ context.Context, s backends.Staged) error {
	if s.Block {
		return nil
	}
	staged, err := n.mountedAt(s, s.Path)
	if err != nil || !staged {
		return err
	}
	if err := freeze.Thaw(s.Path); err != nil {
		return fmt.Errorf("recover volume %s: %w", s.VolumeID, err)
	}
	return nil
}
