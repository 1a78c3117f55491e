//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
)

const (
	// imageName is the file that holds the bytes of a volume or snapshot. It
	// has them all from the moment it exists.
	imageName = "image"
	// unfinishedName is the file while it is made. One that exists when
	// nothing makes it was left by a killed process.
	unfinishedName = "image.tmp"
)

func imagePath(dir string) string { return filepath.Join(dir, imageName) }

// Create makes the volume's image, which reads as zeros.
func (b *Backend) Create(ctx context.Context, v backends.Volume) error {
	if info, err := os.Lstat(imagePath(v.Dir)); err == nil && info.Mode().IsRegular() && info.Size() == v.SizeBytes {
		return nil // whole, since it has this name
	}
	if err := b.writeVolume(ctx, v, nil); err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}
	return nil
}

// writeVolume makes the image of v, with the bytes of source if there is one.
func (b *Backend) writeVolume(ctx context.Context, v backends.Volume, source *os.File) error {
	return b.write(ctx, v.Dir, func(f *os.File) error {
		if source != nil {
			if err := blockio.Copy(ctx, f, source); err != nil {
				return err
			}
		}
		if v.DirectIO {
			if err := checkDirectIO(f.Name()); err != nil {
				return err
			}
		}
		return extend(ctx, f, v.Layout)
	})
}

// checkDirectIO refuses a store where a device would silently use the page
// cache.
func checkDirectIO(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("directIO=true: the store's file system has no direct I/O: %w: %w", err, backends.ErrInvalid)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Grow makes the image longer, then the device that is attached to it.
func (b *Backend) Grow(ctx context.Context, v backends.Volume) error {
	f, err := open(v.Dir, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("grow volume %s: %w", v.ID, err)
	}
	defer f.Close()
	if err := extend(ctx, f, v.Layout); err != nil {
		return fmt.Errorf("grow volume %s: %w", v.ID, err)
	}
	if err := b.flush(f); err != nil {
		return fmt.Errorf("grow volume %s: %w", v.ID, err)
	}
	if d := b.attached(v.ID); d != nil {
		if err := d.Refresh(); err != nil {
			return fmt.Errorf("grow volume %s: show device %s its size: %w", v.ID, d.Path(), err)
		}
	}
	return nil
}

// extend makes f as long as the layout says, and never shorter.
func extend(ctx context.Context, f *os.File, l backends.Layout) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if l.Thick {
		if err := blockio.Allocate(ctx, f, l.SizeBytes); err != nil {
			return err
		}
		return unshare(ctx, f, l.SizeBytes)
	}
	if info.Size() < l.SizeBytes {
		return classify(f.Truncate(l.SizeBytes))
	}
	return nil
}

// unshareBytes is how much is parted between two looks at the context.
const unshareBytes = 64 << 20

// unshare gives f blocks of its own, since those that it shares with its source
// need new space when they are written to.
func unshare(ctx context.Context, f *os.File, size int64) error {
	const unshareRange = 0x40 // FALLOC_FL_UNSHARE_RANGE, see fallocate(2)
	for offset := int64(0); offset < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := syscall.Fallocate(int(f.Fd()), unshareRange, offset, min(unshareBytes, size-offset))
		switch {
		case err == nil:
			offset += unshareBytes
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
			return nil // a store without shared blocks, or one that cannot part them
		default:
			return classify(os.NewSyscallError("fallocate", err))
		}
	}
	return nil
}

// write makes the image of dir under another name, has fill write it, and
// renames it when it is whole. After an error nothing is left.
func (b *Backend) write(ctx context.Context, dir string, fill func(*os.File) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	unfinished := filepath.Join(dir, unfinishedName)
	f, err := os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return classify(err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, remove(unfinished))
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := b.flush(f); err != nil {
		return err
	}
	if err := os.Rename(unfinished, imagePath(dir)); err != nil {
		return classify(err)
	}
	return b.flushDir(dir)
}

// open opens the image of a volume or snapshot. backends.ErrDataLoss is
// returned when there is none.
func open(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(imagePath(dir), flag|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", err, backends.ErrDataLoss)
	}
	return f, err
}

func (b *Backend) flush(f *os.File) error {
	if !b.o.Sync {
		return nil
	}
	return classify(f.Sync())
}

func (b *Backend) flushDir(dir string) error {
	if !b.o.Sync {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeImage removes whatever of an image lies in dir.
func removeImage(dir string) error {
	return errors.Join(remove(imagePath(dir)), remove(filepath.Join(dir, unfinishedName)))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// NestedDir is the name of the directory, one level below that of a volume, in
// which an image may lie too: package tmpfs mounts a file system there.
const NestedDir = "block"
