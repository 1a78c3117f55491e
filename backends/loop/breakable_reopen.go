//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// adoptServed adopts the device and the holder of a breakable volume and returns
// the name of the device, if both are there and the record explains them, and
// takes away what of them is not. Where it adopted nothing, all is made anew by
// attach. Who uses a device whose image was deleted goes on, as on a plain one.
func (r *reopening) adoptServed(ctx context.Context, d *bound, v backends.Held) (string, error) {
	dir := breakableDir(v.Volume)
	if err := sweepNotes(dir); err != nil {
		return "", err
	}
	note, err := readBinding(dir)
	if err != nil {
		return "", err
	}
	image, err := imagefile.IdentityAt(imagefile.Path(v.Dir))
	var lost error
	if errors.Is(err, os.ErrNotExist) {
		if v.Attachment != nil {
			lost = fmt.Errorf("its bytes are lost: %w: %w", err, backends.ErrDataLoss)
		}
		if st, err := fusefile.Ask(ctx, dir); err == nil {
			image = st.Image
		}
	} else if err != nil {
		return "", err
	}
	if v.Attachment != nil && v.Attachment.ID == note.Name {
		if err := r.adoptIfServed(ctx, d, v, image, note); err != nil {
			return "", errors.Join(lost, err)
		}
	}
	if d.device != nil {
		return d.device.Name, lost
	}
	return "", errors.Join(lost, r.freeServed(ctx, d, dir, note), r.b.unserve(ctx, v.Volume, d))
}

// adoptIfServed adopts the device of a note, if a holder serves its backing file
// with the bytes of image.
func (r *reopening) adoptIfServed(ctx context.Context, d *bound, v backends.Held, image imagefile.Identity, note binding) error {
	dir := breakableDir(v.Volume)
	shape, err := readShape(dir)
	if err != nil {
		return err
	}
	if alive, err := r.b.isServed(ctx, v.Volume, image, shape); err != nil || !alive {
		return err
	}
	for _, st := range r.devices[note.file()] {
		if !note.is(st) || st.ReadOnly != v.Attachment.ReadOnly || st.SizeLimit != 0 {
			continue
		}
		device, err := r.b.pool.Adopt(st.Index, st.Name)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue // it went since the scan
		}
		if err != nil {
			return fmt.Errorf("adopt device %d: %w", st.Index, err)
		}
		d.device, d.readOnly = device, st.ReadOnly
		d.serving = &serving{image: image, file: note.file(), dir: dir}
		return nil
	}
	return nil
}

// freeServed takes away the device that a note is about.
func (r *reopening) freeServed(ctx context.Context, d *bound, dir string, note binding) error {
	errs := []error{letGo(ctx, dir)}
	for _, st := range r.devices[note.file()] {
		if note.is(st) {
			errs = append(errs, r.freeOne(ctx, d, st))
		}
	}
	return errors.Join(errs...)
}

// unexplained takes away the device and the holder of a volume that no record
// knows.
func (r *reopening) unexplained(ctx context.Context, dir string) error {
	note, err := readBinding(dir)
	if err != nil {
		return err
	}
	d := &bound{}
	if err := r.freeServed(ctx, d, dir, note); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holderPatience)
	defer cancel()
	return fusefile.Stop(ctx, dir, "", len(d.leaving) == 0)
}
