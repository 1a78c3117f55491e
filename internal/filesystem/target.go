//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// target is a device that is written to. It is an interface so that tests can
// stop a format between any two writes.
type target interface {
	// ReadAt reads what the device has, not what its page cache has. The buffer
	// must be aligned to blocks, and whole sectors are read.
	io.ReaderAt
	io.WriterAt
	// Size is the device's length in bytes.
	Size() int64
	// Zero makes a range read as zeros, and gives its space back to the store
	// where that is possible.
	Zero(ctx context.Context, offset, length int64) error
	// Settle hands everything written so far to the device, past the page
	// cache, which some file systems do not read through.
	Settle() error
	// Sync makes everything written so far survive a lost machine.
	Sync() error
}

// device is the target that is a block device or an image file.
type device struct {
	*os.File
	size   int64
	sector int64
	block  bool
	// direct reads a block device past its page cache.
	direct *os.File
}

// openDevice opens a device for writing and makes sure that it is no read-only one
// and that nobody has claimed it: ErrInUse. It waits for others that write to it through this package.
func openDevice(ctx context.Context, path string) (_ *device, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) { // a kernel that protects mounted devices
		return nil, fmt.Errorf("open %s for writing: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open device for writing: %w", err)
	}
	d := &device{File: file, sector: sectorBytes}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.size, d.block, err = deviceSize(file); err != nil {
		return nil, err
	}
	if err := lock(ctx, file); err != nil {
		return nil, err
	}
	if !d.block {
		return d, nil
	}
	// Opening for writing succeeds on a device that refuses writes.
	readOnly, err := ioctlInt(file, unix.BLKROGET)
	if err != nil {
		return nil, fmt.Errorf("ask whether %s is read-only: %w", path, err)
	}
	if readOnly != 0 {
		return nil, fmt.Errorf("open %s for writing: %w: %w", path, backends.ErrPrecondition, unix.EROFS)
	}
	if d.sector, err = ioctlInt(file, unix.BLKSSZGET); err != nil {
		return nil, fmt.Errorf("ask the sector size of %s: %w", path, err)
	}
	if d.direct, err = os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0); err != nil {
		return nil, fmt.Errorf("open device for direct reading: %w", err)
	}
	return d, requireUnclaimed(file)
}

// deviceSize is the length of a block device or a file, and which of them it is.
func deviceSize(file *os.File) (size int64, block bool, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, false, fmt.Errorf("stat device: %w", err)
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return info.Size(), false, nil
	case mode&os.ModeDevice == 0 || mode&os.ModeCharDevice != 0:
		return 0, false, fmt.Errorf("use %s: neither a block device nor a file: %w", file.Name(), backends.ErrInvalid)
	}
	size, err = file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, true, fmt.Errorf("ask the size of %s: %w", file.Name(), err)
	}
	return size, true, nil
}

// Close closes the device.
func (d *device) Close() error {
	var err error
	if d.direct != nil {
		err = d.direct.Close()
	}
	return errors.Join(err, d.File.Close())
}

func (d *device) Size() int64 { return d.size }

// ReadAt reads past the page cache of a block device: that is faster for what is
// read only once, and the only way to know what the device has.
func (d *device) ReadAt(b []byte, offset int64) (int, error) {
	if d.direct != nil {
		return d.direct.ReadAt(b, offset)
	}
	return d.File.ReadAt(b, offset)
}

// Settle writes the page cache of a block device out, but waits for no flush of
// the device itself. Without it xfs and btrfs, which read a device directly,
// could see what was there before: the last close writes the cache out too, but
// somebody else may hold the device open.
func (d *device) Settle() error {
	if !d.block {
		return nil
	}
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := unix.SyncFileRange(int(d.Fd()), 0, 0, all); err != nil {
		return fmt.Errorf("write %s out: %w", d.Name(), err)
	}
	return nil
}
