//go:build linux

package blockio

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reserveBytes is what is reserved between two looks at the context. tmpfs
// zeroes what it reserves, 0.4 s a GiB, and starts over after a signal.
const reserveBytes = 64 << 20

// Allocate takes space in the store for the first size bytes of f, and makes f
// at least that long. Data that is there stays, holes read as zeros still. The
// size changes last, so that f never looks larger than what it has.
//
// backends.ErrExhausted is returned when the store is full. After any error,
// which includes that of ctx, f has its old size and what was taken behind it is
// given back.
func Allocate(ctx context.Context, f *os.File, size int64) error {
	if err := allocate(ctx, f, size); err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, f.Name(), markFull(err))
	}
	return nil
}

func allocate(ctx context.Context, f *os.File, size int64) error {
	old, err := sizeOf(f)
	if err != nil {
		return err
	}
	if err := reserve(ctx, f, size); err != nil {
		return errors.Join(err, f.Truncate(old))
	}
	if size > old {
		return f.Truncate(size)
	}
	return nil
}

func reserve(ctx context.Context, f *os.File, size int64) error {
	return control(f, func(fd int) error {
		for offset := int64(0); offset < size; offset += reserveBytes {
			length := min(size-offset, reserveBytes)
			err := retry(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, offset, length)
			})
			if err != nil {
				return os.NewSyscallError("fallocate", err)
			}
		}
		return nil
	})
}

// AllocatedBytes is the space in bytes that the store holds for f. Blocks that f
// shares with other files count for each of them.
func AllocatedBytes(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := control(f, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return 0, fmt.Errorf("measure %s: %w", f.Name(), err)
	}
	return st.Blocks * 512, nil // st_blocks has this unit whatever the file system's is
}

// FreeBytes is the space in bytes that the file system of dir has left for
// users without privilege.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, fmt.Errorf("measure file system of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Frsize), nil
}
