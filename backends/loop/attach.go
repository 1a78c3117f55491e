//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/step"
)

// The keys of the publish context.
const (
	// AttachmentKey is the attachment's id, which the device carries as its
	// name.
	AttachmentKey = "csiemu.dev/attachment"
	// BootKey is the boot id of the kernel that has the device.
	BootKey = "csiemu.dev/boot"
	// DeviceKey is the device's number, as "7:12". It is a hint: the device
	// has another one after a reboot.
	DeviceKey = "csiemu.dev/device"
)

// Attach binds a loop device to the image.
func (b *Backend) Attach(ctx context.Context, v backends.Volume, a backends.Attachment) (map[string]string, error) {
	d, err := b.attach(ctx, v, a, releaseWait)
	if err != nil {
		return nil, fmt.Errorf("attach volume %s as %s: %w", v.ID, a.ID, err)
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, fmt.Errorf("attach volume %s: %w", v.ID, err)
	}
	return map[string]string{AttachmentKey: a.ID, BootKey: boot, DeviceKey: deviceNumber(d)}, nil
}

func (b *Backend) attach(ctx context.Context, v backends.Volume, a backends.Attachment, wait time.Duration) (*loopdev.Device, error) {
	image, err := imagefile.Open(v.Dir, a.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	bound := b.of(v.ID)
	if !bound.growing {
		if err := requireLength(image, v.SizeBytes); err != nil {
			return nil, err
		}
	}
	if d, err := bound.carrying(a, image); d != nil || err != nil {
		return d, err
	}
	if err := b.awaitReleased(ctx, bound, wait); err != nil {
		return nil, err
	}
	if v.Breakable {
		return b.attachServed(ctx, v, a, bound, image)
	}
	return b.bind(ctx, v, a, bound, image)
}

// bind binds a device to file: the image, or what a holder serves in its place.
func (b *Backend) bind(ctx context.Context, v backends.Volume, a backends.Attachment, bound *bound, file *os.File) (*loopdev.Device, error) {
	if d, err := b.earlier(ctx, a, file); d != nil || err != nil {
		if err == nil {
			bound.device, bound.readOnly, bound.wanted = d, a.ReadOnly, nil
		}
		return d, err
	}
	if a.ReadOnly && !v.Block {
		if err := b.replay(ctx, v, a, bound); err != nil {
			return nil, err
		}
	}
	d, err := b.pool.Attach(ctx, file, loopdev.Config{
		Name: a.ID, ReadOnly: a.ReadOnly, Autoclear: b.o.Autoclear,
		DirectIO: v.DirectIO || v.Breakable, // each request is to reach the holder
	})
	if err != nil {
		return nil, err
	}
	bound.device, bound.readOnly, bound.wanted = d, a.ReadOnly, nil
	return d, step.Done(ctx, "loop.device.bound")
}

// carrying returns the device that serves a already, nil if there is none.
func (d *bound) carrying(a backends.Attachment, image *os.File) (*loopdev.Device, error) {
	if d.device == nil {
		return nil, nil
	}
	_, err := statusOf(d.device)
	if errors.Is(err, loopdev.ErrNotBound) {
		d.device = nil // somebody took it away; it is made anew
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at device %s: %w", d.device.Path(), err)
	}
	if err := d.requireBacking(d.device, image); err != nil {
		return nil, err
	}
	switch {
	case d.device.Name != a.ID:
		return nil, fmt.Errorf("it is attached as %s: %w", d.device.Name, backends.ErrPrecondition)
	case d.readOnly != a.ReadOnly:
		return nil, fmt.Errorf("it is attached with read-only %t: %w", d.readOnly, backends.ErrPrecondition)
	}
	return d.device, nil
}

// replay brings what a crash left in the journal of v to its place, through a
// writable device that lives for this only: the kernel does not mount a dirty
// file system from a device that refuses writes.
func (b *Backend) replay(ctx context.Context, v backends.Volume, a backends.Attachment, bound *bound) (err error) {
	content, err := filesystem.Probe(ctx, imagefile.Path(v.Dir))
	if err != nil {
		return err
	}
	t, err := filesystem.ParseType(content.Type)
	if content.Type == "" || err != nil || content.Clean || content.Half {
		return nil // nothing that csiemu mounts, or nothing to do
	}
	image, err := imagefile.Open(v.Dir, false)
	if err != nil {
		return err
	}
	defer image.Close()
	d, err := b.pool.Attach(ctx, image, loopdev.Config{Name: a.ID + replaySuffix, Autoclear: b.o.Autoclear})
	if err != nil {
		return fmt.Errorf("replay journal: %w", err)
	}
	defer func() {
		err = errors.Join(err, b.detach(context.WithoutCancel(ctx), bound, d))
	}()
	if err := step.Done(ctx, "loop.replay.bound"); err != nil {
		return err
	}
	if err := replayOn(ctx, d, t); err != nil {
		return fmt.Errorf("replay %s journal: %w", t, err)
	}
	if err := step.Done(ctx, "loop.replay.replayed"); err != nil {
		return err
	}
	return d.Flush()
}

const replaySuffix = "-replay"

func replayOn(ctx context.Context, d *loopdev.Device, t filesystem.Type) error {
	if t == filesystem.Ext4 {
		return filesystem.Check(ctx, d.Path(), t)
	}
	o, err := mount.ParseOptions(defaults(t))
	if err != nil {
		return err
	}
	return mount.Replay(ctx, d.Path(), string(t), o)
}

// Detach takes the volume's device away. If something has it open, its I/O fails
// from now on and the kernel frees it with its last user.
func (b *Backend) Detach(ctx context.Context, v backends.Volume, a backends.Attachment) error {
	bound := b.of(v.ID)
	bound.wanted = nil
	if bound.device == nil || bound.device.Name != a.ID {
		if bound.device == nil { // a killed call may have left its holder
			return b.unserve(ctx, v, bound)
		}
		return nil
	}
	if err := b.free(ctx, v, bound); err != nil {
		return fmt.Errorf("detach volume %s: %w", v.ID, err)
	}
	return nil
}

// Delete detaches the volume's device and removes the image. If something has
// the device open still, the bytes go with it.
func (b *Backend) Delete(ctx context.Context, v backends.Volume) error {
	if err := b.delete(ctx, v); err != nil {
		return fmt.Errorf("delete volume %s: %w", v.ID, err)
	}
	return nil
}

func (b *Backend) delete(ctx context.Context, v backends.Volume) error {
	bound := b.of(v.ID)
	if err := b.free(ctx, v, bound); err != nil {
		return err
	}
	if err := b.awaitReleased(ctx, bound, releaseWait); err != nil && !errors.Is(err, backends.ErrPrecondition) {
		return err
	}
	if err := b.removeHolder(ctx, v, bound); err != nil {
		return err
	}
	if err := imagefile.Remove(v.Dir); err != nil {
		return err
	}
	b.forget(v.ID)
	return nil
}
