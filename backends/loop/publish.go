//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
)

// Publish binds the staged file system, or the device node, at a path.
func (n *node) Publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	r.ReadOnly = r.ReadOnly || s.ReadOnly
	publish := n.publishDir
	if s.Block {
		publish = n.publishDevice
	}
	if err := publish(ctx, s, r); err != nil {
		return fmt.Errorf("publish volume %s at %s: %w", s.VolumeID, r.Path, err)
	}
	return nil
}

func (n *node) publishDir(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	staged, err := n.mountedAt(s, s.Path)
	if err != nil {
		return err
	}
	if !staged {
		return fmt.Errorf("device %s is not mounted at the staging path %s: %w", s.Device, s.Path, backends.ErrPrecondition)
	}
	return nodemount.PublishDir(ctx, s, r, func(path string) (bool, error) { return n.mountedAt(s, path) })
}

func (n *node) publishDevice(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if len(r.MountFlags) > 0 {
		return fmt.Errorf("a raw block volume takes no mount options: %w", backends.ErrInvalid)
	}
	st, err := n.status(s)
	if errors.Is(err, loopdev.ErrNotBound) {
		return fmt.Errorf("%w: %w", err, backends.ErrPrecondition)
	}
	if err != nil {
		return err
	}
	// The kernel ignores a read-only mount for devices, so options are for who
	// reads mountinfo.
	options, node := []string{"dev"}, s.Device
	if r.ReadOnly {
		options = append(options, "ro")
	}
	if r.ReadOnly && !st.ReadOnly {
		reader, err := n.readers.get(ctx, s)
		if err != nil {
			return err
		}
		node = reader.Path()
	}
	err = bindDevice(ctx, node, r.Path, options)
	if err != nil && node != s.Device {
		err = errors.Join(err, n.readers.drop(context.WithoutCancel(ctx), s.DeviceID))
	}
	return err
}

// bindDevice binds a device node at target, unless it is there.
func bindDevice(ctx context.Context, node, target string, options []string) error {
	info, err := mount.Stat(target)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && info.IsRoot {
		if info.Rdev != 0 && info.Rdev == nodemount.NodeNumber(node) {
			return nil
		}
		return fmt.Errorf("something else than device %s is mounted there: %w", node, backends.ErrExists)
	}
	o, err := mount.ParseOptions(options)
	if err != nil {
		return err
	}
	return nodemount.BindFile(ctx, node, target, o)
}

// IsPublished asks what is mounted at path. It takes constant time.
func (n *node) IsPublished(ctx context.Context, s backends.Staged, path string) (bool, error) {
	if !s.Block {
		return n.mountedAt(s, path)
	}
	info, err := mount.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.IsRoot || info.Rdev == 0 {
		return false, err
	}
	if info.Rdev == nodemount.NodeNumber(s.Device) {
		return true, nil
	}
	return n.readers.isAt(ctx, s, info.Rdev)
}

// Unpublish unmounts path and removes it. The device may be dead or gone. What
// somebody else mounted there stays.
func (n *node) Unpublish(ctx context.Context, s backends.Staged, path string) error {
	if isForeign(s, path) {
		return nil
	}
	err := nodemount.Unbind(ctx, path, func() bool { return n.dead(s) })
	if err == nil && s.Block {
		err = n.readers.drop(ctx, s.DeviceID)
	}
	if err != nil {
		return fmt.Errorf("unpublish volume %s at %s: %w", s.VolumeID, path, err)
	}
	return nil
}

// isForeign says whether something is mounted at path that is none of s. What
// does not answer is a mount of ours whose device is gone.
func isForeign(s backends.Staged, path string) bool {
	if !s.Block {
		dev, mounted, err := nodemount.Device(path)
		return err == nil && mounted && dev != 0 && dev != nodemount.NodeNumber(s.Device)
	}
	// Which read-only device was bound there is not known once it is gone, so any
	// loop device is taken for ours.
	info, err := mount.Stat(path)
	return err == nil && info.IsRoot && !info.Dead && !loopdev.IsLoop(info.Rdev)
}
