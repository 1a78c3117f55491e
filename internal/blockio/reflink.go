//go:build linux

package blockio

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// flushBytes is how much unwritten data is flushed between two looks at the
// context.
const flushBytes = 32 << 20

// clone makes dst share the blocks of src. It reports false where the store
// cannot do that; dst is empty still then.
func clone(ctx context.Context, dst, src *os.File, size int64) (bool, error) {
	if !sharesBlocks(src) {
		return false, nil
	}
	// FICLONE flushes src and cannot be interrupted, which is half a second a
	// GiB. Flushing in steps before leaves it little to do.
	if err := flush(ctx, src, size); err != nil {
		return false, err
	}
	err := control(dst, func(dstFD int) error {
		return control(src, func(srcFD int) error {
			return retry(func() error { return unix.IoctlFileClone(dstFD, srcFD) })
		})
	})
	if isAny(err, unix.EXDEV, unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS, unix.EINVAL, unix.EPERM) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("ioctl FICLONE", err)
}

// sharesBlocks reports whether f lies on a store whose files can share blocks.
// It asks to share nothing with no other file: a file system without the
// ability says EOPNOTSUPP before it looks further. It says yes for a file
// system that was made without its reflink feature (mkfs.xfs -m reflink=0);
// that costs time, never data.
func sharesBlocks(f *os.File) bool {
	return control(f, func(fd int) error {
		return unix.IoctlFileDedupeRange(fd, &unix.FileDedupeRange{})
	}) == nil
}

func flush(ctx context.Context, f *os.File, size int64) error {
	const flags = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return control(f, func(fd int) error {
		for offset := int64(0); offset < size; offset += flushBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := retry(func() error { return unix.SyncFileRange(fd, offset, flushBytes, flags) })
			if err != nil {
				return os.NewSyscallError("sync_file_range", err)
			}
		}
		return nil
	})
}
