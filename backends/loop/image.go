//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/step"
)

// NestedDir is the name of the directory, one level below that of a volume, in
// which an image may lie too: package tmpfs mounts a file system there.
const NestedDir = "block"

// Create makes the volume's image, which reads as zeros.
func (b *Backend) Create(ctx context.Context, v backends.Volume) error {
	if info, err := os.Lstat(imagefile.Path(v.Dir)); err == nil && info.Mode().IsRegular() && info.Size() == v.SizeBytes {
		return nil // whole, since it has this name
	}
	if err := b.write(ctx, v, nil); err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}
	return nil
}

// write makes the image of v, with the bytes of source if there is one.
func (b *Backend) write(ctx context.Context, v backends.Volume, source *os.File) error {
	return imagefile.Make(ctx, v.Dir, b.o.Sync, func(f *os.File) error {
		if source != nil {
			if err := blockio.Copy(ctx, f, source); err != nil {
				return err
			}
		}
		if v.DirectIO {
			if err := imagefile.CheckDirectIO(f); err != nil {
				return fmt.Errorf("directIO=true: %w", err)
			}
		}
		return imagefile.Extend(ctx, f, v.SizeBytes, v.Thick)
	})
}

// Grow makes the image longer, then the device that is attached to it.
func (b *Backend) Grow(ctx context.Context, v backends.Volume) error {
	bound := b.of(v.ID)
	d, err := b.extend(ctx, v)
	if err == nil {
		err = step.Done(ctx, "loop.image.extended")
	}
	bound.growing = err != nil && !errors.Is(err, backends.ErrPrecondition)
	if err != nil {
		return fmt.Errorf("grow volume %s: %w", v.ID, err)
	}
	if a := bound.wanted; a != nil {
		if _, err := b.attach(ctx, v, *a, 0); err != nil {
			return fmt.Errorf("grow volume %s: attach it again: %w", v.ID, err)
		}
		return nil
	}
	if d != nil && v.Breakable {
		if err := fusefile.Refresh(breakableDir(v)); err != nil {
			return fmt.Errorf("grow volume %s: show its size: %w: %w", v.ID, err, backends.ErrPrecondition)
		}
	}
	if d != nil {
		if err := d.Refresh(); err != nil {
			return fmt.Errorf("grow volume %s: show device %s its size: %w", v.ID, d.Path(), err)
		}
	}
	return nil
}

// extend makes the image as long as v, and returns the device over it, if any.
func (b *Backend) extend(ctx context.Context, v backends.Volume) (d *loopdev.Device, err error) {
	f, err := imagefile.Open(v.Dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if d, err = b.behind(v.ID, f); err != nil {
		return nil, err
	}
	if err := imagefile.Extend(ctx, f, v.SizeBytes, v.Thick); err != nil {
		return nil, err
	}
	if b.o.Sync {
		return d, f.Sync()
	}
	return d, nil
}
