//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/imagefile"
)

// Snapshot copies the image of v, after the device that is attached to it was
// flushed.
func (b *Backend) Snapshot(ctx context.Context, v backends.Volume, s backends.Snapshot) error {
	source, err := b.openStill(v)
	if err != nil {
		return fmt.Errorf("snapshot volume %s: %w", v.ID, err)
	}
	defer source.Close()
	// A repeated call cuts anew: nobody was told of the first cut.
	if err := imagefile.Remove(s.Dir); err != nil {
		return fmt.Errorf("snapshot volume %s: %w", v.ID, err)
	}
	err = imagefile.Make(ctx, s.Dir, b.o.Sync, func(f *os.File) error { return blockio.Copy(ctx, f, source) })
	if err != nil {
		return fmt.Errorf("snapshot volume %s to %s: %w", v.ID, s.ID, err)
	}
	return nil
}

// DeleteSnapshot removes the snapshot's image.
func (b *Backend) DeleteSnapshot(_ context.Context, s backends.Snapshot) error {
	if err := imagefile.Remove(s.Dir); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", s.ID, err)
	}
	return nil
}

// Restore copies the image of s, and makes the copy as long as v.
func (b *Backend) Restore(ctx context.Context, s backends.Snapshot, v backends.Volume) error {
	source, err := imagefile.Open(s.Dir, true)
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", s.ID, err)
	}
	defer source.Close()
	if err := b.copyTo(ctx, source, v); err != nil {
		return fmt.Errorf("restore snapshot %s to volume %s: %w", s.ID, v.ID, err)
	}
	return nil
}

// Clone copies the image of src, after the device that is attached to it was
// flushed, and makes the copy as long as v.
func (b *Backend) Clone(ctx context.Context, src, v backends.Volume) error {
	source, err := b.openStill(src)
	if err != nil {
		return fmt.Errorf("clone volume %s: %w", src.ID, err)
	}
	defer source.Close()
	if err := b.copyTo(ctx, source, v); err != nil {
		return fmt.Errorf("clone volume %s to %s: %w", src.ID, v.ID, err)
	}
	return nil
}

func (b *Backend) copyTo(ctx context.Context, source *os.File, v backends.Volume) error {
	if err := imagefile.Remove(v.Dir); err != nil { // of a first attempt
		return err
	}
	return b.write(ctx, v, source)
}

// openStill opens the image of v with everything in it that was written to its
// device.
func (b *Backend) openStill(v backends.Volume) (*os.File, error) {
	f, err := imagefile.Open(v.Dir, true)
	if err != nil {
		return nil, err
	}
	d, err := b.behind(v.ID, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if d != nil && !b.isPaused(v.ID) {
		if err := d.Flush(); err != nil {
			return nil, errors.Join(fmt.Errorf("flush device %s: %w", d.Path(), err), f.Close())
		}
	}
	return f, nil
}

// Usage is what the image of v takes, or a copy of it. Blocks that it shares
// with other images count for each of them.
func (b *Backend) Usage(_ context.Context, v backends.Volume) (backends.Usage, error) {
	f, err := imagefile.Open(v.Dir, true)
	if err != nil {
		return backends.Usage{}, fmt.Errorf("measure volume %s: %w", v.ID, err)
	}
	defer f.Close()
	n, err := blockio.AllocatedBytes(f)
	if err != nil {
		return backends.Usage{}, fmt.Errorf("measure volume %s: %w", v.ID, err)
	}
	return backends.Usage{AllocatedBytes: n}, nil
}
