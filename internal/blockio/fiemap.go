//go:build linux

package blockio

import (
	"context"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The FIEMAP ioctl, as linux/fiemap.h and the kernel's
// Documentation/filesystems/fiemap.rst have it. x/sys does not.
const (
	fsIocFiemap    = 0xC020660B
	fiemapFlagSync = 0x1

	fiemapExtentLast   = 0x1
	fiemapExtentShared = 0x2000
	// fiemapExtentOpaque are the flags of extents whose physical address is not
	// known or does not name the bytes alone: unknown, delayed, encoded,
	// encrypted, not aligned, inline, tail, unwritten.
	fiemapExtentOpaque = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length                  uint64
	flags, mapped, count, reserved uint32
	extents                        [256]fiemapExtent
}

// blockMap walks the physical blocks of a file, in ascending order of the
// file's offsets.
type blockMap struct {
	file *os.File
	pos  int64
	// batch is what the kernel told last and was not handed out yet.
	batch []fiemapExtent
	last  bool
	// flushed is set with the first request: nobody writes meanwhile.
	flushed bool
	req     *fiemap
}

// next returns the next extent, and false behind the last one.
func (m *blockMap) next(ctx context.Context) (fiemapExtent, bool, error) {
	if len(m.batch) == 0 && !m.last {
		if err := ctx.Err(); err != nil {
			return fiemapExtent{}, false, err
		}
		if err := m.fetch(); err != nil {
			return fiemapExtent{}, false, err
		}
	}
	if len(m.batch) == 0 {
		return fiemapExtent{}, false, nil
	}
	e := m.batch[0]
	m.batch = m.batch[1:]
	return e, true, nil
}

func (m *blockMap) fetch() error {
	if m.req == nil {
		m.req = new(fiemap)
	}
	r := m.req
	r.start, r.length = uint64(m.pos), ^uint64(0)-uint64(m.pos)
	r.flags, r.mapped, r.count = 0, 0, uint32(len(r.extents))
	if !m.flushed {
		// Without a flush, data that was just written has no place yet.
		r.flags, m.flushed = fiemapFlagSync, true
	}
	err := control(m.file, func(fd int) error {
		return retry(func() error {
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFiemap, uintptr(unsafe.Pointer(r)))
			if errno != 0 {
				return errno
			}
			return nil
		})
	})
	if isAny(err, unix.EOPNOTSUPP, unix.ENOTTY, unix.EBADR) {
		m.last = true // no map here: everything is compared
		return nil
	}
	if err != nil {
		return os.NewSyscallError("ioctl FS_IOC_FIEMAP", err)
	}
	m.batch = r.extents[:r.mapped]
	if r.mapped == 0 {
		m.last = true
		return nil
	}
	tail := m.batch[r.mapped-1]
	m.pos = int64(tail.logical + tail.length)
	m.last = tail.flags&fiemapExtentLast != 0
	return nil
}

// sharing finds the ranges that two files of one file system keep in the same
// blocks. Its zero value finds none.
type sharing struct {
	base, target       *blockMap
	baseHas, targetHas bool
	b, t               fiemapExtent
}

func newSharing(ctx context.Context, base, target *os.File, from int64) (sharing, error) {
	same, err := sameDevice(base, target)
	if err != nil || !same || !sharesBlocks(base) {
		return sharing{}, err
	}
	s := sharing{base: &blockMap{file: base, pos: from}, target: &blockMap{file: target, pos: from}}
	if err := s.nextBase(ctx); err != nil {
		return sharing{}, err
	}
	return s, s.nextTarget(ctx)
}

func (s *sharing) nextBase(ctx context.Context) (err error) {
	s.b, s.baseHas, err = s.base.next(ctx)
	return err
}

func (s *sharing) nextTarget(ctx context.Context) (err error) {
	s.t, s.targetHas, err = s.target.next(ctx)
	return err
}

// from returns the first range that ends after pos and is kept in the same
// blocks, cut inward to whole backends.Granularity. pos never goes back from
// one call to the next.
func (s *sharing) from(ctx context.Context, pos int64) (Extent, bool, error) {
	for s.baseHas && s.targetHas {
		bEnd, tEnd := s.b.logical+s.b.length, s.t.logical+s.t.length
		start := alignUp(int64(max(s.b.logical, s.t.logical, uint64(pos))))
		stop := alignDown(int64(min(bEnd, tEnd)))
		if start < stop && sameBlocks(s.b, s.t) {
			return Extent{Offset: start, Length: stop - start}, true, nil
		}
		var err error
		if bEnd <= tEnd {
			err = s.nextBase(ctx)
		} else {
			err = s.nextTarget(ctx)
		}
		if err != nil {
			return Extent{}, false, err
		}
	}
	return Extent{}, false, nil
}

func sameBlocks(a, b fiemapExtent) bool {
	return a.physical-a.logical == b.physical-b.logical &&
		a.flags&b.flags&fiemapExtentShared != 0 &&
		(a.flags|b.flags)&fiemapExtentOpaque == 0
}

func sameDevice(a, b *os.File) (bool, error) {
	deviceOf := func(f *os.File) (dev uint64, err error) {
		err = control(f, func(fd int) error {
			var st unix.Stat_t
			err := unix.Fstat(fd, &st)
			dev = uint64(st.Dev)
			return err
		})
		return dev, err
	}
	devA, err := deviceOf(a)
	if err != nil {
		return false, err
	}
	devB, err := deviceOf(b)
	return devA == devB, err
}
