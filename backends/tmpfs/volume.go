//go:build linux

package tmpfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/treecopy"
	"github.com/csiemu/csiemu/internal/undo"
)

// PathKey is the key of the publish context for the directory where a file
// system volume is mounted. The others are those of package loop.
const PathKey = "csiemu.dev/path"

// Create mounts the volume's tmpfs.
func (b *Backend) Create(ctx context.Context, v backends.Volume) error {
	if err := b.create(ctx, v); err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}
	return nil
}

func (b *Backend) create(ctx context.Context, v backends.Volume) error {
	if !v.Block {
		return b.ensure(ctx, dataDir(v.Dir), v.ID, v.SizeBytes)
	}
	return b.fillBlock(ctx, v.Dir, v.ID, v.SizeBytes, func() error { return b.loops.Create(ctx, blockVolume(v)) })
}

// ensure mounts a tmpfs at dir if there is none.
func (b *Backend) ensure(ctx context.Context, dir, id string, size int64) error {
	if _, err := device(dir); err == nil {
		b.keep(dir)
		return resize(ctx, dir, size)
	}
	return b.mountAt(ctx, dir, id, size)
}

// fillBlock mounts the tmpfs for an image and has fill make it. After an error
// nothing is left.
func (b *Backend) fillBlock(ctx context.Context, parent, id string, size int64, fill func() error) error {
	dir := blockDir(parent)
	if err := b.ensure(ctx, dir, id, size); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return b.unmountAt(ctx, dir) }))
	}
	return nil
}

// Delete takes the volume's device and tmpfs away.
func (b *Backend) Delete(ctx context.Context, v backends.Volume) error {
	err := b.loops.Delete(ctx, blockVolume(v))
	if err == nil {
		err = b.clear(ctx, v.Dir)
	}
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", v.ID, err)
	}
	return nil
}

// clear takes away everything that may be mounted in the directory of a volume
// or snapshot.
func (b *Backend) clear(ctx context.Context, dir string) error {
	return errors.Join(b.unmountAt(ctx, filepath.Join(dir, unfinishedName)), b.unmountAt(ctx, dataDir(dir)), b.unmountAt(ctx, blockDir(dir)))
}

// Grow gives the tmpfs its new size, and the image and device of a raw block
// volume.
func (b *Backend) Grow(ctx context.Context, v backends.Volume) error {
	dir := dataDir(v.Dir)
	if v.Block {
		dir = blockDir(v.Dir)
	}
	if err := resize(ctx, dir, v.SizeBytes); err != nil {
		return fmt.Errorf("grow volume %s: %w", v.ID, err)
	}
	if v.Block {
		return b.loops.Grow(ctx, blockVolume(v))
	}
	return nil
}

// Attach tells where the volume is mounted, or binds a device to its image.
func (b *Backend) Attach(ctx context.Context, v backends.Volume, a backends.Attachment) (map[string]string, error) {
	if v.Block {
		return b.loops.Attach(ctx, blockVolume(v), a)
	}
	dir := dataDir(v.Dir)
	if _, err := device(dir); err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", v.ID, err)
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", v.ID, err)
	}
	return map[string]string{loop.AttachmentKey: a.ID, loop.BootKey: boot, PathKey: dir}, nil
}

// Detach takes a device away. A file system stays where a node has bound it:
// there is no device that could be taken away.
func (b *Backend) Detach(ctx context.Context, v backends.Volume, a backends.Attachment) error {
	if v.Block {
		return b.loops.Detach(ctx, blockVolume(v), a)
	}
	return nil
}

// Snapshot copies the tree, or the image, of v to a tmpfs of the same size.
func (b *Backend) Snapshot(ctx context.Context, v backends.Volume, s backends.Snapshot) error {
	var err error
	if v.Block {
		err = b.fillBlock(ctx, s.Dir, s.ID, s.SizeBytes, func() error {
			return b.loops.Snapshot(ctx, blockVolume(v), blockSnapshot(s))
		})
	} else {
		err = b.copyTree(ctx, dataDir(v.Dir), s.Dir, s.ID, s.SizeBytes, "ro")
	}
	if err != nil {
		return fmt.Errorf("snapshot volume %s to %s: %w", v.ID, s.ID, err)
	}
	return nil
}

// DeleteSnapshot takes the snapshot's tmpfs away.
func (b *Backend) DeleteSnapshot(ctx context.Context, s backends.Snapshot) error {
	if err := b.clear(ctx, s.Dir); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", s.ID, err)
	}
	return nil
}

// Restore copies the tree, or the image, of s to a tmpfs of the size of v.
func (b *Backend) Restore(ctx context.Context, s backends.Snapshot, v backends.Volume) error {
	var err error
	if v.Block {
		err = b.fillBlock(ctx, v.Dir, v.ID, v.SizeBytes, func() error {
			return b.loops.Restore(ctx, blockSnapshot(s), blockVolume(v))
		})
	} else {
		err = b.copyTree(ctx, dataDir(s.Dir), v.Dir, v.ID, v.SizeBytes)
	}
	if err != nil {
		return fmt.Errorf("restore snapshot %s to volume %s: %w", s.ID, v.ID, err)
	}
	return nil
}

// Clone copies the tree, or the image, of src to a tmpfs of the size of v.
func (b *Backend) Clone(ctx context.Context, src, v backends.Volume) error {
	var err error
	if v.Block {
		err = b.fillBlock(ctx, v.Dir, v.ID, v.SizeBytes, func() error {
			return b.loops.Clone(ctx, blockVolume(src), blockVolume(v))
		})
	} else {
		err = b.copyTree(ctx, dataDir(src.Dir), v.Dir, v.ID, v.SizeBytes)
	}
	if err != nil {
		return fmt.Errorf("clone volume %s to %s: %w", src.ID, v.ID, err)
	}
	return nil
}

// copyTree makes the tmpfs of a volume or snapshot in parent with the tree at
// from. It is seen at its place only when it is whole, so that a killed copy is
// not taken for one. After an error nothing is left.
func (b *Backend) copyTree(ctx context.Context, from, parent, id string, size int64, attributes ...string) (err error) {
	if _, err := device(from); err != nil {
		return err
	}
	if err := b.clear(ctx, parent); err != nil { // of a first attempt
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return b.clear(ctx, parent) }))
		}
	}()
	unfinished, whole := filepath.Join(parent, unfinishedName), dataDir(parent)
	if err := b.mountAt(ctx, unfinished, id, size); err != nil {
		return err
	}
	if err := treecopy.CopyTree(ctx, unfinished, from); err != nil {
		return err
	}
	if err := step.Done(ctx, "tmpfs.tree.copied"); err != nil {
		return err
	}
	o, err := mount.ParseOptions(attributes)
	if err != nil {
		return err
	}
	if _, err := mount.MakeDirTarget(whole); err != nil {
		return err
	}
	if err := mount.Bind(ctx, unfinished, whole, o); err != nil {
		return err
	}
	b.keep(whole)
	if err := step.Done(ctx, "tmpfs.tree.bound"); err != nil {
		return err
	}
	return b.unmountAt(ctx, unfinished)
}

// Usage is the memory that the volume takes, or a copy of it.
func (b *Backend) Usage(ctx context.Context, v backends.Volume) (backends.Usage, error) {
	if v.Block {
		return b.loops.Usage(ctx, blockVolume(v))
	}
	if _, err := device(dataDir(v.Dir)); err != nil {
		return backends.Usage{}, fmt.Errorf("measure volume %s: %w", v.ID, err)
	}
	u, err := mount.StatFS(dataDir(v.Dir))
	if err != nil {
		return backends.Usage{}, fmt.Errorf("measure volume %s: %w", v.ID, err)
	}
	return backends.Usage{AllocatedBytes: u.Used}, nil
}
