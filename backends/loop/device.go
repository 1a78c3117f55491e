//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/step"
)

// bound are the loop devices over one volume's image.
type bound struct {
	// device is the one of the attachment, nil if there is none.
	device   *loopdev.Device
	readOnly bool
	// growing is true after a Grow that failed: the image may be shorter than the
	// layout says.
	growing bool
	// wanted is the attachment that Reopen could not make because the image was
	// short. If a growth was interrupted, its end makes it.
	wanted *backends.Attachment
	// serving is the holder of a breakable volume that has a device, or had one
	// that is in use still.
	serving *serving
	// paused is how many pauses of writes this process holds; Backend.mu guards
	// it.
	paused int
	// leaving are devices that were detached while something had them open.
	// Their I/O fails; the kernel frees each with its last user.
	leaving []*loopdev.Device
}

// of returns what is known of a volume's devices, for the caller to change.
func (b *Backend) of(volumeID string) *bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.bound[volumeID]
	if d == nil {
		d = &bound{}
		b.bound[volumeID] = d
	}
	return d
}

func (b *Backend) forget(volumeID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.bound, volumeID)
}

// attached returns the device of a volume's attachment, or nil if there is none
// or it does not carry the attachment any more.
func (b *Backend) attached(volumeID string) *loopdev.Device {
	b.mu.Lock()
	d := b.bound[volumeID]
	b.mu.Unlock()
	if d == nil || d.device == nil {
		return nil
	}
	if _, err := statusOf(d.device); err != nil {
		return nil
	}
	return d.device
}

// behind returns the device of a volume's attachment, or nil if there is none.
// backends.ErrPrecondition is returned if its backing file is not the image: what
// was written through the device is not in there.
func (b *Backend) behind(volumeID string, image *os.File) (*loopdev.Device, error) {
	d := b.attached(volumeID)
	if d == nil {
		return nil, nil
	}
	return d, b.of(volumeID).requireBacking(d, image)
}

// requireBacking is backends.ErrPrecondition if neither the image, nor what a
// holder serves in its place, is the backing file of a volume's device.
func (d *bound) requireBacking(device *loopdev.Device, image *os.File) error {
	id, err := imagefile.IdentityOf(image)
	if err != nil {
		return err
	}
	if d.serving != nil && d.serving.image == id {
		id = d.serving.file
	}
	return requireBacking(device, id, image.Name())
}

// requireBacking is backends.ErrPrecondition if a file is not the backing file
// of d.
func requireBacking(d *loopdev.Device, id imagefile.Identity, name string) error {
	st, err := statusOf(d)
	if err != nil {
		return fmt.Errorf("look at device %s: %w", d.Path(), err)
	}
	if backing(st) != id {
		return fmt.Errorf("device %s (%s) has another backing file than %s: %w", d.Path(), d.Name, name, backends.ErrPrecondition)
	}
	return nil
}

// statusOf is the state of a device that still carries its name, else
// loopdev.ErrNotBound.
func statusOf(d *loopdev.Device) (loopdev.Status, error) {
	st, err := d.Status()
	if err == nil && st.Name != d.Name {
		return st, fmt.Errorf("device %s carries %q, not %q: %w", d.Path(), st.Name, d.Name, loopdev.ErrNotBound)
	}
	return st, err
}

// backing is the identity of a device's backing file.
func backing(st loopdev.Status) imagefile.Identity {
	return imagefile.Identity{Dev: st.BackingDev, Inode: st.BackingInode}
}

// detach takes a device away. It is kept in leaving as long as it is in use.
func (b *Backend) detach(ctx context.Context, d *bound, device *loopdev.Device) error {
	inUse, err := b.pool.Detach(ctx, device)
	if err != nil {
		return fmt.Errorf("detach device %s (%s): %w", device.Path(), device.Name, err)
	}
	if inUse {
		d.leaving = append(d.leaving, device)
	}
	if err := step.Done(ctx, "loop.device.detached"); err != nil || !inUse {
		return err
	}
	return b.detachReaders(ctx, device.Name)
}

// detachReaders takes away the read-only devices that nodes made over the
// device of an attachment and that nobody has open, as those of a node that is
// gone: they keep the device below in use.
func (b *Backend) detachReaders(ctx context.Context, attachment string) error {
	all, err := b.pool.Scan(ctx)
	if err != nil {
		return fmt.Errorf("look for readers of device %s: %w", attachment, err)
	}
	var errs []error
	for _, st := range all {
		if !strings.HasPrefix(st.Name, attachment+readerSuffix) {
			continue
		}
		d, err := b.pool.Adopt(st.Index, st.Name)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue
		}
		if err == nil {
			_, err = b.pool.Detach(ctx, d)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const (
	// releaseWait bounds the wait for the users of a device that was detached.
	// Programs such as udev have devices open for moments only.
	releaseWait = 2 * time.Second
	releaseLook = 10 * time.Millisecond
)

// awaitReleased waits a moment until the detached devices of a volume have gone.
// backends.ErrPrecondition is returned when they are in use still. The kernel
// announces no release, so it is asked.
func (b *Backend) awaitReleased(ctx context.Context, d *bound, wait time.Duration) error {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	look := time.NewTicker(releaseLook)
	defer look.Stop()
	for {
		if err := d.dropReleased(); err != nil {
			return err
		}
		if len(d.leaving) == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			old := d.leaving[0]
			return fmt.Errorf("device %s of the earlier attachment %s is still in use, by a mount or an open file: %w", old.Path(), old.Name, backends.ErrPrecondition)
		}
	}
}

func (d *bound) dropReleased() error {
	var left []*loopdev.Device
	for _, device := range d.leaving {
		_, err := statusOf(device)
		switch {
		case errors.Is(err, loopdev.ErrNotBound):
		case err != nil:
			return fmt.Errorf("look at device %s: %w", device.Path(), err)
		default:
			left = append(left, device)
		}
	}
	d.leaving = left
	return nil
}
