//go:build linux

package blockio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

const (
	// chunkBytes is what is copied between two looks at the context: small
	// enough for a slow disk to cancel promptly, large enough for the system
	// call to cost nothing beside it.
	chunkBytes = 8 << 20
	// bufferBytes is the buffer where the kernel does not copy by itself.
	bufferBytes = 1 << 20
)

// Copy makes dst, an empty file that is open for writing and not for appending,
// the same as src: the same size, data and holes. Where the store can share
// blocks, src is flushed, dst shares its blocks, and the cut is one moment of src
// even while it is written; elsewhere src must be held still. dst is not flushed.
//
// backends.ErrExhausted is returned when the store is full. After any error,
// which includes that of ctx, dst holds an unfinished copy.
func Copy(ctx context.Context, dst, src *os.File) error {
	if err := copyFile(ctx, dst, src); err != nil {
		return fmt.Errorf("copy %s to %s: %w", src.Name(), dst.Name(), markFull(err))
	}
	return nil
}

func copyFile(ctx context.Context, dst, src *os.File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	size, err := sizeOf(src)
	if err != nil {
		return err
	}
	// Data below a hole of src would stay in dst and make it another volume.
	if old, err := sizeOf(dst); err != nil {
		return err
	} else if old != 0 {
		return fmt.Errorf("destination has %d bytes already: %w", old, unix.EEXIST)
	}
	if size == 0 {
		return nil
	}
	if cloned, err := clone(ctx, dst, src, size); cloned || err != nil {
		return err
	}
	return copyExtents(ctx, dst, src, size)
}

// copyExtents copies data and leaves holes.
func copyExtents(ctx context.Context, dst, src *os.File, size int64) error {
	// The size comes first: a file that grows with each write makes some stores
	// set blocks aside behind its end.
	if err := dst.Truncate(size); err != nil {
		return err
	}
	c := copier{dst: dst, src: src}
	var copyErr error
	err := eachExtent(ctx, src, 0, func(e Extent) bool {
		copyErr = c.copy(ctx, e)
		return copyErr == nil
	})
	return errors.Join(copyErr, err)
}

// copier copies ranges from one file to another, inside the kernel as long as
// it agrees.
type copier struct {
	dst, src *os.File
	// buffer is nil as long as the kernel copies.
	buffer []byte
}

func (c *copier) copy(ctx context.Context, e Extent) error {
	for e.Length > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := c.step(e.Offset, int(min(e.Length, chunkBytes)))
		if err != nil {
			return err
		}
		e.Offset += int64(n)
		e.Length -= int64(n)
	}
	return nil
}

func (c *copier) step(offset int64, length int) (int, error) {
	if c.buffer != nil {
		return c.throughBuffer(offset, length)
	}
	n, err := c.insideKernel(offset, length)
	switch {
	case isAny(err, unix.EXDEV, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EPERM):
		// Another file system, one without the call, or a sandbox that denies it.
		c.buffer = make([]byte, bufferBytes)
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("copy_file_range", err)
	case n == 0:
		return 0, fmt.Errorf("source ends before byte %d: %w", offset, io.ErrUnexpectedEOF)
	}
	return n, nil
}

func (c *copier) insideKernel(offset int64, length int) (n int, err error) {
	err = control(c.dst, func(dstFD int) error {
		return control(c.src, func(srcFD int) error {
			from, to := offset, offset
			return retry(func() error {
				n, err = unix.CopyFileRange(srcFD, &from, dstFD, &to, length, 0)
				return err
			})
		})
	})
	return n, err
}

func (c *copier) throughBuffer(offset int64, length int) (int, error) {
	p := c.buffer[:min(length, len(c.buffer))]
	n, err := c.src.ReadAt(p, offset)
	if err == io.EOF && n < len(p) {
		return 0, fmt.Errorf("source ends before byte %d: %w", offset+int64(len(p)), io.ErrUnexpectedEOF)
	}
	if err != nil && err != io.EOF {
		return 0, err
	}
	return c.dst.WriteAt(p, offset)
}

// markFull adds backends.ErrExhausted to the error of a full store.
func markFull(err error) error {
	if isAny(err, unix.ENOSPC, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", backends.ErrExhausted, err)
	}
	return err
}
