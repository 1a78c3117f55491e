//go:build linux

package loopdev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// bind configures one free device. errTaken is returned if it is not free.
func (p *Pool) bind(index int, backing *os.File, c Config) (*Device, error) {
	mode := readWrite
	if c.ReadOnly {
		mode = readOnly
	}
	path, fd, err := p.nodes.open(index, mode)
	if err != nil {
		if errors.Is(err, ErrNotBound) {
			return nil, errTaken
		}
		return nil, err
	}
	d := &Device{Index: index, Name: c.Name, nodes: p.nodes, path: path}
	if err := configure(fd, backing, c); err != nil {
		_ = closeFD(fd)
		return nil, err
	}
	if err := settle(fd, backing, c); err != nil {
		// Ours since configure, and open: nobody else can have it yet.
		return nil, errors.Join(err, clearFD(fd), closeFD(fd))
	}
	d.sequence = diskSequence(fd)
	if c.Autoclear {
		d.hold, d.holding = fd, true
		return d, nil
	}
	if err := closeFD(fd); err != nil {
		_, undo := d.arm()
		return nil, errors.Join(fmt.Errorf("close %s: %w", path, err), undo)
	}
	return d, nil
}

// configure is the one ioctl that binds the device and names it.
func configure(fd int, backing *os.File, c Config) error {
	config := unix.LoopConfig{}
	copy(config.Info.File_name[:maxName], c.Name)
	if c.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	if c.Autoclear {
		config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	return withFD(backing, func(file int) error {
		if !c.ReadOnly {
			// The kernel would make a read-only device of such a file, and say
			// nothing.
			if flags, err := unix.FcntlInt(uintptr(file), unix.F_GETFL, 0); err != nil {
				return fmt.Errorf("ask how the backing file is open: %w", err)
			} else if flags&unix.O_ACCMODE != unix.O_RDWR {
				return errors.New("a writable device needs a backing file that is open for reading and writing")
			}
		}
		if c.DirectIO {
			config.Info.Flags |= unix.LO_FLAGS_DIRECT_IO
			config.Size = directAlignment(file)
		}
		config.Fd = uint32(file)
		switch err := unix.IoctlLoopConfigure(fd, &config); {
		case errors.Is(err, unix.EBUSY):
			return errTaken
		case err != nil:
			return fmt.Errorf("LOOP_CONFIGURE: %w", err)
		}
		return nil
	})
}

// settle does what LOOP_CONFIGURE leaves open.
func settle(fd int, backing *os.File, c Config) error {
	if !c.ReadOnly {
		// A read-only mark that someone set on the node (blockdev --setro)
		// outlives the file that was bound then, and would hit this one.
		if err := unix.IoctlSetPointerInt(fd, unix.BLKROSET, 0); err != nil {
			return fmt.Errorf("make the device writable: %w", err)
		}
	}
	if !c.DirectIO {
		return nil
	}
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return fmt.Errorf("ask for direct I/O: %w", err)
	}
	if info.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
		// The kernel falls back to the page cache and says nothing.
		return &kernel.NotSupportedError{
			Feature: kernel.DirectIOFeature,
			Reason:  "the kernel does not use direct I/O on " + backing.Name(),
			Remedy:  "keep the backing file on ext4, xfs or btrfs, or do not ask for direct I/O",
		}
	}
	return nil
}

// directAlignment is the sector size that direct I/O on the file needs, or 0
// where the file system does not tell. Linux before 6.14 takes 512 bytes if it is
// not told, and then no direct I/O at all on a file system with larger sectors.
func directAlignment(fd int) uint32 {
	var stat unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stat)
	if err != nil || stat.Mask&unix.STATX_DIOALIGN == 0 {
		return 0
	}
	return stat.Dio_offset_align
}
