//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lock takes the lock that programs which write to whole devices agree on
// (systemd.io/BLOCK_DEVICE_LOCKING), and waits for it no longer than ctx lasts.
// It ends with the descriptor.
func lock(ctx context.Context, file *os.File) error {
	var ticker *time.Ticker
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		// The kernel tells nobody that a lock is free but those who wait in
		// flock, and they cannot be called back.
		if ticker == nil {
			ticker = time.NewTicker(time.Millisecond)
			defer ticker.Stop()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", file.Name(), ctx.Err())
		}
	}
}

// requireUnclaimed returns ErrInUse if a block device is mounted or claimed by
// another program.
//
// Opening with O_EXCL would ask the same, but keeps the claim for as long as
// anybody has the descriptor, and for a moment that is every child process that
// is being started: the mount that follows would fail at random. Setting the
// block size to what it is claims the device within the call and changes
// nothing.
func requireUnclaimed(file *os.File) error {
	size, err := ioctlInt(file, unix.BLKBSZGET)
	if err != nil {
		return fmt.Errorf("ask the block size of %s: %w", file.Name(), err)
	}
	same := int32(size)
	err = ioctl(file, unix.BLKBSZSET, unsafe.Pointer(&same))
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("use %s: %w", file.Name(), ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", file.Name(), err)
	}
	return nil
}

// ioctlInt asks for a C int.
func ioctlInt(file *os.File, request uintptr) (int64, error) {
	var value int32
	err := ioctl(file, request, unsafe.Pointer(&value))
	return int64(value), err
}
