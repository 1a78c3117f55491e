//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// zeroChunk bounds how long Zero works before it looks at its context.
const zeroChunk = 1 << 30

// Zero makes a range read as zeros. It asks for the range to be deallocated
// first: for a block device that is a discard which, other than BLKDISCARD,
// promises zeros. A device without it gets zeros written, by the kernel if it
// can do that alone.
func (d *device) Zero(ctx context.Context, offset, length int64) error {
	end := offset + length
	// The kernel wants whole pages or sectors: the ragged start is written.
	if aligned := min(end, (offset+blockBytes-1)/blockBytes*blockBytes); aligned > offset {
		if err := d.writeZeros(ctx, offset, aligned-offset); err != nil {
			return err
		}
		offset = aligned
	}
	for offset < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(zeroChunk, end-offset)
		if err := d.deallocate(ctx, offset, n); err != nil {
			return err
		}
		offset += n
	}
	return nil
}

// deallocate takes the first of three ways that the device has.
func (d *device) deallocate(ctx context.Context, offset, length int64) error {
	for _, mode := range []uint32{unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE} {
		err := retryInterrupted(func() error {
			return unix.Fallocate(int(d.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, offset, length)
		})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("zero %d bytes at %d of %s: %w", length, offset, d.Name(), err)
		}
	}
	return d.writeZeros(ctx, offset, length)
}

// writeZeros writes a range full of zeros.
func (d *device) writeZeros(ctx context.Context, offset, length int64) error {
	buffer := make([]byte, min(length, 1<<20))
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.WriteAt(buffer[:min(length, int64(len(buffer)))], offset)
		if err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
		offset += int64(n)
		length -= int64(n)
	}
	return nil
}

// retryInterrupted repeats a system call that a signal interrupted.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
