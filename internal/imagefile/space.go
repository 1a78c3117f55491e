//go:build linux

package imagefile

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
)

// Extend makes f size bytes long, and never shorter. With thick all of its space
// is taken from the store, and what it shares with other files is parted from
// them: writing to shared blocks would need space that was promised already.
// Errors are those of Make.
func Extend(ctx context.Context, f *os.File, size int64, thick bool) error {
	if thick {
		if err := blockio.Allocate(ctx, f, size); err != nil {
			return classified(err)
		}
		return part(ctx, f, size)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return classified(f.Truncate(size))
	}
	return nil
}

// partBytes is how much is parted between two looks at the context.
const partBytes = 64 << 20

// part gives f blocks of its own, where the store can do that.
func part(ctx context.Context, f *os.File, size int64) error {
	for offset := int64(0); offset < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_UNSHARE_RANGE, offset, min(partBytes, size-offset))
		switch {
		case err == nil:
			offset += partBytes
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			return nil // a store without shared blocks, or one that cannot part them
		default:
			return classified(os.NewSyscallError("fallocate", err))
		}
	}
	return nil
}

// CheckDirectIO returns backends.ErrInvalid where the store of f has no direct
// I/O, so that a device over it would use the page cache.
func CheckDirectIO(f *os.File) error {
	direct, err := os.OpenFile(f.Name(), os.O_RDWR|unix.O_DIRECT|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("the store's file system has no direct I/O: %w: %w", err, backends.ErrInvalid)
	}
	if err != nil {
		return err
	}
	return direct.Close()
}
