//go:build linux

package tmpfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// node is the half of a node. Raw block volumes are the business of package
// loop.
type node struct{ block backends.Node }

var (
	_ backends.Node          = (*node)(nil)
	_ backends.EphemeralNode = (*node)(nil)
)

// Node makes the half of a node.
func (b *Backend) Node(c backends.NodeConfig) (backends.Node, error) {
	block, err := b.loops.Node(c)
	if err != nil {
		return nil, err
	}
	return &node{block: block}, nil
}

// Close frees what the half holds for raw block volumes.
func (n *node) Close() error { return n.block.Close() }

// Stage binds the volume's tmpfs.
func (n *node) Stage(ctx context.Context, r backends.StageRequest) (backends.Staged, error) {
	path, isDir := r.PublishContext[PathKey]
	_, isDevice := r.PublishContext[loop.DeviceKey]
	if r.Block && !isDir { // which says so if there is no context at all
		return n.block.Stage(ctx, r)
	}
	var err error
	switch {
	case r.Block:
		err = fmt.Errorf("it is a file system, not a block device: %w", backends.ErrPrecondition)
	case isDevice:
		err = fmt.Errorf("it is a block device, not a file system: %w", backends.ErrPrecondition)
	case !isDir:
		err = fmt.Errorf("it is not attached: its publish context has no %s: %w", PathKey, backends.ErrNotFound)
	default:
		var s backends.Staged
		if s, err = n.stage(ctx, r, path); err == nil {
			return s, nil
		}
	}
	return backends.Staged{}, fmt.Errorf("stage volume %s at %s: %w", r.VolumeID, r.Path, err)
}

func (n *node) stage(ctx context.Context, r backends.StageRequest, path string) (backends.Staged, error) {
	o, gid, grouped, err := wishOf(r)
	if err != nil {
		return backends.Staged{}, err
	}
	dev, err := device(path)
	if err != nil {
		return backends.Staged{}, err
	}
	s := backends.Staged{VolumeID: r.VolumeID, Path: r.Path, FSType: fsType, Options: o.String(), ReadOnly: r.ReadOnly}
	if err := describe(&s, path, dev); err != nil {
		return backends.Staged{}, err
	}
	if err := bindOnce(ctx, path, r.Path, dev, o); err != nil {
		return backends.Staged{}, err
	}
	if err := step.Done(ctx, "tmpfs.stage.bound"); err != nil {
		return backends.Staged{}, errors.Join(err, mount.Unmount(r.Path))
	}
	if grouped && !r.ReadOnly && !o.ReadOnly() {
		if err := nodemount.ShareWithGroup(r.Path, gid); err != nil {
			return backends.Staged{}, errors.Join(err, mount.Unmount(r.Path))
		}
	}
	return s, nil
}

func wishOf(r backends.StageRequest) (o mount.Options, gid int, grouped bool, err error) {
	if err := checkType(r.FSType); err != nil {
		return o, 0, false, err
	}
	if o, err = mount.ParseOptions(r.MountFlags); err != nil {
		return o, 0, false, err
	}
	if p := nodemount.Parameters(o); len(p) > 0 {
		key, _, _ := strings.Cut(p[0], "=")
		return o, 0, false, fmt.Errorf("mount option %q belongs to the file system, which was mounted when the volume was created and is only bound now: %w", key, backends.ErrInvalid)
	}
	gid, grouped, err = nodemount.ParseGroup(r.Group)
	return o, gid, grouped, err
}

// bindOnce binds source at target unless it is there.
func bindOnce(ctx context.Context, source, target string, dev uint64, o mount.Options) error {
	info, err := mount.Stat(target)
	switch {
	case err != nil:
		return err
	case !info.IsRoot:
		return mount.Bind(ctx, source, target, o)
	case info.Dev != dev:
		return fmt.Errorf("something else is mounted there: %w", backends.ErrPrecondition)
	}
	return nil
}

// describe puts down what tells the tmpfs at path, with that device number, from
// all others, and its size. The number is unique as long as the machine runs.
func describe(s *backends.Staged, path string, dev uint64) error {
	boot, err := kernel.BootID()
	if err != nil {
		return err
	}
	u, err := mount.StatFS(path)
	if err != nil {
		return err
	}
	s.DeviceID, s.SizeBytes = boot+"/"+strconv.FormatUint(dev, 16), u.Total
	return nil
}

// mountedAt says whether the tmpfs of s is mounted at path.
func mountedAt(s backends.Staged, path string) (bool, error) {
	boot, err := kernel.BootID()
	if err != nil {
		return false, err
	}
	info, err := mount.Stat(path)
	if errors.Is(err, backends.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.IsRoot && s.DeviceID == boot+"/"+strconv.FormatUint(info.Dev, 16), nil
}

// IsStaged asks what is mounted at the staging path. It takes constant time.
func (n *node) IsStaged(ctx context.Context, s backends.Staged) (bool, error) {
	if s.Block {
		return n.block.IsStaged(ctx, s)
	}
	return mountedAt(s, s.Path)
}

// Unstage unbinds the staging path.
func (n *node) Unstage(ctx context.Context, s backends.Staged) error {
	if s.Block {
		return n.block.Unstage(ctx, s)
	}
	staged, err := mountedAt(s, s.Path)
	if s.DeviceID == "" {
		staged, err = isMarked(s)
	}
	if err == nil && staged {
		err = mount.Unmount(s.Path)
	}
	if err != nil {
		return fmt.Errorf("unstage volume %s at %s: %w", s.VolumeID, s.Path, err)
	}
	return nil
}

// isMarked says whether what is mounted at the path of s carries the mark of the
// volume. It answers for a record that was never completed, because the process
// was killed in Stage.
func isMarked(s backends.Staged) (bool, error) {
	all, err := mount.ListUnder(s.Path)
	if err != nil || len(all) == 0 {
		return false, err
	}
	info, err := mount.Stat(s.Path)
	if errors.Is(err, backends.ErrNotFound) {
		return false, nil
	}
	marked := slices.ContainsFunc(all, func(e mount.Entry) bool {
		return e.Dev == info.Dev && e.FSType == fsType && e.Source == sourcePrefix+s.VolumeID
	})
	return info.IsRoot && marked, err
}

// Publish binds the staging path at another.
func (n *node) Publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if s.Block {
		return n.block.Publish(ctx, s, r)
	}
	r.ReadOnly = r.ReadOnly || s.ReadOnly
	staged, err := mountedAt(s, s.Path)
	if err == nil && !staged {
		err = fmt.Errorf("it is not mounted at the staging path %s: %w", s.Path, backends.ErrPrecondition)
	}
	if err == nil {
		err = nodemount.PublishDir(ctx, s, r, func(path string) (bool, error) { return mountedAt(s, path) })
	}
	if err != nil {
		return fmt.Errorf("publish volume %s at %s: %w", s.VolumeID, r.Path, err)
	}
	return nil
}

// IsPublished asks what is mounted at path. It takes constant time.
func (n *node) IsPublished(ctx context.Context, s backends.Staged, path string) (bool, error) {
	if s.Block {
		return n.block.IsPublished(ctx, s, path)
	}
	return mountedAt(s, path)
}

// Unpublish unmounts path and removes it. What somebody else mounted there stays.
func (n *node) Unpublish(ctx context.Context, s backends.Staged, path string) error {
	if s.Block {
		return n.block.Unpublish(ctx, s, path)
	}
	ours, err := mountedAt(s, path)
	if info, statErr := mount.Stat(path); err == nil && !ours && statErr == nil && info.IsRoot && !info.Dead {
		return nil
	}
	if err := nodemount.Unbind(ctx, path, func() bool { return false }); err != nil {
		return fmt.Errorf("unpublish volume %s at %s: %w", s.VolumeID, path, err)
	}
	return nil
}

// Stats reports on the volume seen at path.
func (n *node) Stats(ctx context.Context, s backends.Staged, path string) (backends.Stats, error) {
	if s.Block {
		return n.block.Stats(ctx, s, path)
	}
	seen, err := mountedAt(s, path)
	if err == nil && !seen {
		err = fmt.Errorf("it is not there: %w", backends.ErrNotFound)
	}
	if err != nil {
		return backends.Stats{}, fmt.Errorf("measure volume %s at %s: %w", s.VolumeID, path, err)
	}
	return nodemount.Stats(path)
}

// Expand tells the size, which a tmpfs has as soon as the array gave it.
func (n *node) Expand(ctx context.Context, s backends.Staged) (int64, error) {
	if s.Block {
		return n.block.Expand(ctx, s)
	}
	stats, err := n.Stats(ctx, s, s.Path)
	if err != nil {
		return 0, fmt.Errorf("expand: %w", err)
	}
	return stats.TotalBytes, nil
}

// Hold needs nothing where no workload can write, and is backends.ErrPrecondition
// where one can: tmpfs cannot be frozen.
func (n *node) Hold(ctx context.Context, s backends.Staged, h backends.Hold) (func() error, error) {
	if s.Block {
		return n.block.Hold(ctx, s, h)
	}
	if h.Published && !s.ReadOnly {
		return nil, fmt.Errorf("hold volume %s: a tmpfs cannot be frozen; unpublish it, or publish it read-only, first: %w", s.VolumeID, backends.ErrPrecondition)
	}
	return func() error { return nil }, nil
}

// Recover has nothing to undo for a tmpfs.
func (n *node) Recover(ctx context.Context, s backends.Staged) error {
	if s.Block {
		return n.block.Recover(ctx, s)
	}
	return nil
}
