//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// Stage finds the device and, for a file system, formats, checks, mounts and
// grows it.
func (n *node) Stage(ctx context.Context, r backends.StageRequest) (backends.Staged, error) {
	s, err := n.stage(ctx, r)
	if err != nil {
		return backends.Staged{}, fmt.Errorf("stage volume %s at %s: %w", r.VolumeID, r.Path, err)
	}
	return s, nil
}

func (n *node) stage(ctx context.Context, r backends.StageRequest) (_ backends.Staged, err error) {
	d, st, err := n.find(ctx, r.PublishContext)
	if err != nil {
		return backends.Staged{}, err
	}
	s := backends.Staged{
		VolumeID: r.VolumeID, Path: r.Path, Block: r.Block, ReadOnly: r.ReadOnly || st.ReadOnly,
		Device: d.Path(), DeviceID: d.Name,
	}
	// While it is held its index cannot go to another volume. A mount holds the
	// device by itself.
	err = n.held.hold(r.VolumeID, d.Name, d.Path())
	if errors.Is(err, loopdev.ErrNotBound) { // detached since it was found
		err = fmt.Errorf("%w: %w", err, backends.ErrNotFound)
	}
	if err != nil || r.Block {
		return s, err
	}
	defer func() { err = errors.Join(err, n.held.release(d.Name)) }()
	w, err := wishOf(r, st.ReadOnly)
	if err != nil {
		return backends.Staged{}, err
	}
	s.FSType, s.Options = string(w.fsType), w.options.String()
	return s, becauseDetached(d, n.mount(ctx, d, w, s))
}

// becauseDetached gives an error the kind backends.ErrNotFound where the device
// was detached meanwhile: its I/O fails in every way then.
func becauseDetached(d *loopdev.Device, err error) error {
	if err == nil {
		return nil
	}
	st, statusErr := statusOf(d)
	if !errors.Is(statusErr, loopdev.ErrNotBound) && (statusErr != nil || st.SizeLimit == 0) {
		return err
	}
	return fmt.Errorf("device %s was detached meanwhile: %w: %w", d.Path(), backends.ErrNotFound, err)
}

// wish is what a stage request asks of a file system.
type wish struct {
	fsType  filesystem.Type
	options mount.Options
	group   int
	grouped bool
	// readOnly is true for a device that refuses writes.
	readOnly bool
}

func wishOf(r backends.StageRequest, readOnly bool) (w wish, err error) {
	w.readOnly = readOnly
	if w.fsType, err = filesystem.ParseType(r.FSType); err != nil {
		return wish{}, err
	}
	if w.group, w.grouped, err = nodemount.ParseGroup(r.Group); err != nil {
		return wish{}, err
	}
	options := defaults(w.fsType)
	if w.grouped && w.fsType != filesystem.Btrfs {
		options = append(options, "grpid")
	}
	options = append(options, r.MountFlags...)
	if readOnly {
		options = append(options, "ro")
	}
	w.options, err = mount.ParseOptions(options)
	return w, err
}

// defaults are the mount options of a type, before those that are asked for.
func defaults(t filesystem.Type) []string {
	switch t {
	case filesystem.Ext4:
		// The kernel would write zeros over the inode tables of every volume, in
		// the background, which read as zeros already.
		return []string{"noinit_itable"}
	case filesystem.XFS:
		// Snapshots and clones have the UUID of their source
		// (container-storage-interface/spec#482).
		return []string{"nouuid"}
	default:
		return nil
	}
}

// mount makes the file system of d what w asks for and mounts it at the path of
// s. After an error it is not mounted there.
func (n *node) mount(ctx context.Context, d *loopdev.Device, w wish, s backends.Staged) (err error) {
	dev, mounted, err := nodemount.Device(s.Path)
	switch {
	case err != nil:
		return err
	case mounted && dev == 0:
		return fmt.Errorf("a mount that is dead is there; unstage it first: %w", backends.ErrPrecondition)
	case mounted && dev != nodemount.NodeNumber(d.Path()):
		return fmt.Errorf("something else than device %s is mounted there: %w", d.Path(), backends.ErrPrecondition)
	}
	size, err := d.Size()
	if err != nil {
		return err
	}
	content, err := n.prepare(ctx, d, w, size)
	if err != nil {
		return err
	}
	if !mounted {
		if err := n.intents.put(ctx, s); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, n.unstage(context.WithoutCancel(ctx), s))
			}
		}()
		if err := mount.Mount(ctx, d.Path(), s.Path, s.FSType, w.options); err != nil {
			return fmt.Errorf("mount device %s: %w", d.Path(), err)
		}
		if err := step.Done(ctx, "loop.stage.mounted"); err != nil {
			return err
		}
	}
	return n.finish(ctx, w, s, content, size)
}

// finish does what can be done only while the file system is mounted.
func (n *node) finish(ctx context.Context, w wish, s backends.Staged, content filesystem.Content, size int64) error {
	if w.options.ReadOnly() {
		return nil
	}
	if !content.Fills(size) {
		err := filesystem.GrowMounted(ctx, s.Path, w.fsType, size)
		// Another node has it mounted, so that it could not grow before. The
		// volume is usable; Expand says what is missing.
		if err != nil && !errors.Is(err, kernel.ErrNotSupported) {
			return fmt.Errorf("grow file system of device %s: %w", s.Device, err)
		}
		if err := step.Done(ctx, "loop.filesystem.grown"); err != nil {
			return err
		}
	}
	if w.grouped {
		return nodemount.ShareWithGroup(s.Path, w.group)
	}
	return nil
}

// prepare makes d mountable: formatted if it is blank, clean, and grown where
// that cannot be done later. It returns what lies on d then.
func (n *node) prepare(ctx context.Context, d *loopdev.Device, w wish, size int64) (filesystem.Content, error) {
	content, err := n.formatBlank(ctx, d, w, size)
	switch {
	case err != nil:
		return content, err
	case content == filesystem.Content{}:
		return content, nil // formatted: as large as the device, and clean
	case content.Type != string(w.fsType):
		return content, fmt.Errorf("device %s holds %s, not %s, and is not overwritten: %w", d.Path(), content.Type, w.fsType, backends.ErrPrecondition)
	}
	if w.fsType == filesystem.Btrfs {
		if err := checkTwin(ctx, d, content.UUID); err != nil {
			return content, err
		}
	}
	if w.readOnly {
		return content, nil
	}
	return content, n.repair(ctx, d, w, content, size)
}

// formatBlank formats d if it is blank, and returns what lies there if it is not: no
// Content at all says that it was formatted.
func (n *node) formatBlank(ctx context.Context, d *loopdev.Device, w wish, size int64) (filesystem.Content, error) {
	refused := fmt.Errorf("it refuses writes: %w", backends.ErrPrecondition)
	if !w.readOnly {
		// Format looks before it writes, so that a device is looked at once.
		_, refused = n.maker.Format(ctx, d.Path(), w.fsType, size, n.sync)
		var there *filesystem.NotBlankError
		switch {
		case refused == nil:
			return filesystem.Content{}, step.Done(ctx, "loop.filesystem.formatted")
		case errors.As(refused, &there):
			return there.Content, nil
		case !errors.Is(refused, filesystem.ErrInUse):
			return filesystem.Content{}, fmt.Errorf("format device %s: %w", d.Path(), becauseFull(refused, d.Index))
		}
	}
	content, err := filesystem.Probe(ctx, d.Path())
	if err != nil {
		return content, fmt.Errorf("look at device %s: %w", d.Path(), err)
	}
	if content.Blank() || content.Half {
		return content, fmt.Errorf("device %s is blank and cannot be formatted: %w", d.Path(), refused)
	}
	return content, nil
}

// repair checks and grows an existing file system before it is mounted. One that
// another node of this kernel has mounted needs neither.
func (n *node) repair(ctx context.Context, d *loopdev.Device, w wish, content filesystem.Content, size int64) error {
	if !content.Clean {
		err := filesystem.Check(ctx, d.Path(), w.fsType)
		if errors.Is(err, filesystem.ErrInUse) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("check device %s: %w", d.Path(), err)
		}
		if err := step.Done(ctx, "loop.filesystem.checked"); err != nil {
			return err
		}
	}
	if w.fsType != filesystem.Ext4 || content.Fills(size) || kernel.Probe(ctx, kernel.SysResource) == nil {
		return nil // grown when it is mounted
	}
	err := filesystem.GrowOffline(ctx, d.Path(), w.fsType)
	if errors.Is(err, filesystem.ErrInUse) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("grow device %s: %w", d.Path(), err)
	}
	return step.Done(ctx, "loop.filesystem.grown")
}

// checkTwin refuses a btrfs whose source or copy is mounted, where the kernel
// knows file systems by their UUID alone.
func checkTwin(ctx context.Context, d *loopdev.Device, uuid string) error {
	devices, err := os.ReadDir(filepath.Join("/sys/fs/btrfs", uuid, "devices"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for mounted copies of btrfs %s: %w", uuid, err)
	}
	for _, other := range devices {
		if indexOf(other.Name()) == d.Index {
			return nil
		}
	}
	if err := kernel.Probe(ctx, kernel.BtrfsTempFSID); err != nil {
		return fmt.Errorf("a snapshot, clone or source of this btrfs, with the same UUID %s, is mounted: %w: %w", uuid, err, backends.ErrPrecondition)
	}
	return nil
}

// Unstage unmounts the staging path. The device may be dead or gone.
func (n *node) Unstage(ctx context.Context, s backends.Staged) error {
	if err := n.unstage(ctx, s); err != nil {
		return fmt.Errorf("unstage volume %s at %s: %w", s.VolumeID, s.Path, err)
	}
	return nil
}

func (n *node) unstage(ctx context.Context, s backends.Staged) error {
	if s.Block {
		err := n.readers.drop(ctx, s.DeviceID)
		if s.DeviceID == "" { // a record that was never completed
			return errors.Join(err, n.held.releaseVolume(s.VolumeID))
		}
		return errors.Join(err, n.held.release(s.DeviceID))
	}
	s, known, err := n.intents.complete(s)
	if err != nil || !known {
		return err
	}
	dev, mounted, err := nodemount.Device(s.Path)
	// What does not answer is a mount of ours whose device is gone.
	foreign := err == nil && dev != 0 && dev != nodemount.NodeNumber(s.Device)
	if mounted && !foreign {
		if err := nodemount.Unmount(s.Path, func() bool { return n.dead(s) }); err != nil {
			return err
		}
		if err := step.Done(ctx, "loop.stage.unmounted"); err != nil {
			return err
		}
	}
	return n.intents.drop(s.VolumeID)
}

// becauseFull gives an I/O error of a loop device the kind
// backends.ErrExhausted where the store of its image is full: what the device
// writes late gets EIO, whatever the store said.
func becauseFull(err error, index int) error {
	if !loopdev.IsIOError(err) || errors.Is(err, backends.ErrExhausted) {
		return err
	}
	image, pathErr := backingPath(index)
	if pathErr != nil {
		return err
	}
	const full = 4 << 20 // what is left where some write found no space
	free, freeErr := blockio.FreeBytes(filepath.Dir(image))
	if freeErr != nil || free >= full {
		return err
	}
	return fmt.Errorf("%w: the store has %d bytes left: %w", err, free, backends.ErrExhausted)
}
