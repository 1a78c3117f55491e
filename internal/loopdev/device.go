//go:build linux

package loopdev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// binding is whose file a device is bound to.
type binding int

const (
	unbound binding = iota
	own             // the device carries our name
	foreign         // it carries another
)

// ask asks over an open descriptor whether the device is still this one. As long
// as the descriptor is open, own stays true.
func (d *Device) ask(fd int) (binding, error) {
	info, err := unix.IoctlLoopGetStatus64(fd)
	switch {
	case errors.Is(err, unix.ENXIO):
		return unbound, nil
	case err != nil:
		// The kernel asks the backing file for its inode and fails where that
		// does not answer, as on a FUSE file whose server is dead.
		if d.sequence != 0 && d.sequence == diskSequence(fd) {
			return own, nil
		}
		return foreign, fmt.Errorf("ask loop%d for its name: %w", d.Index, err)
	case nameOf(info) != d.Name:
		return foreign, nil
	}
	return own, nil
}

// verify is nil if the device is this one, and ErrNotBound if it is not.
func (d *Device) verify(fd int) error {
	switch b, err := d.ask(fd); {
	case err != nil:
		return err
	case b == unbound:
		return fmt.Errorf("%s: %w", d.Name, ErrNotBound)
	case b == foreign:
		return fmt.Errorf("%s: loop%d carries another name: %w", d.Name, d.Index, ErrNotBound)
	}
	return nil
}

// with opens the device, makes sure that it is ours and lends it to f.
func (d *Device) with(what string, f func(fd int) error) error {
	_, fd, err := d.nodes.open(d.Index, readOnly)
	if err == nil {
		if err = d.verify(fd); err == nil {
			err = f(fd)
		}
		err = errors.Join(err, closeFD(fd))
	}
	if err != nil {
		return fmt.Errorf("%s loop%d: %w", what, d.Index, err)
	}
	return nil
}

// Status asks the kernel for the device's state.
func (d *Device) Status() (Status, error) {
	var status Status
	err := d.with("get status of", func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err != nil {
			return err
		}
		status = statusFrom(info)
		return nil
	})
	return status, err
}

// Size is the size of the device in bytes: that of the backing file at Attach or
// at the last Refresh, or 0 while it is fenced.
func (d *Device) Size() (int64, error) {
	var size int64
	err := d.with("get size of", func(fd int) error {
		bytes, err := unix.IoctlGetUint64(fd, unix.BLKGETSIZE64)
		size = int64(bytes)
		return err
	})
	return size, err
}

// Refresh gives the device the size that its backing file has now.
func (d *Device) Refresh() error {
	return d.with("refresh size of", func(fd int) error {
		return ioctl(fd, unix.LOOP_SET_CAPACITY, 0)
	})
}

// Flush writes what is in the page cache of the device to the backing file and
// that to its disk. It knows nothing of a file system mounted on the device.
func (d *Device) Flush() error {
	return d.with("flush", unix.Fsync)
}

// Fence takes all bytes away from the users of the device, also from those who
// have it open or mounted, until Unfence. What was written before is written to
// the backing file first, then the device gets the size 0: a file system on it
// gets EIO; who reads or writes the device itself gets end of file and ENOSPC.
// Linux before 6.5 must leave the first 512 bytes.
func (d *Device) Fence() error { return d.limit(context.Background(), "fence", fencedSize()) }

// Unfence undoes Fence. A file system that met an error meanwhile has to be
// mounted anew.
func (d *Device) Unfence() error { return d.limit(context.Background(), "unfence", 0) }

// fencedSize is the size limit, in bytes, that stops all I/O. One byte makes a
// device without a sector. Older kernels check no bounds on such a device, so a
// mounted file system would go on: bio_check_eod in block/blk-core.c.
func fencedSize() uint64 {
	if kernelAtLeast(6, 5) {
		return 1
	}
	return 512
}

func (d *Device) limit(ctx context.Context, what string, size uint64) error {
	return d.with(what, func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if errors.Is(err, unix.ENOTCONN) {
			return nil // the server of the backing file is dead: no I/O can pass
		}
		if err != nil {
			return err
		}
		if info.Sizelimit == size {
			return nil
		}
		info.Sizelimit = size
		return setStatus(ctx, fd, info)
	})
}

// statusPatience bounds how long setStatus repeats itself.
const statusPatience = 200 * time.Millisecond

// setStatus repeats LOOP_SET_STATUS64 while the kernel says EAGAIN, which older
// ones do when pages were written to between their flush and their change.
func setStatus(ctx context.Context, fd int, info *unix.LoopInfo64) error {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	for wait := time.Millisecond; ; wait *= 2 {
		err := unix.IoctlLoopSetStatus64(fd, info)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("set size limit while the device is written to: %w", err)
		}
	}
}

// pause waits, and reports false if ctx was done first.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
