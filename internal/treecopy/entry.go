//go:build linux

package treecopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/blockio"
)

// entry is anything in a directory that is not one itself.
type entry struct {
	dir  *directory
	name string
	stat unix.Stat_t
}

func (e *entry) kind() uint32 { return uint32(e.stat.Mode) & unix.S_IFMT }

func (e *entry) srcFD() int { return int(e.dir.src.Fd()) }
func (e *entry) dstFD() int { return int(e.dir.dst.Fd()) }

// copy makes the entry in the destination, with its attributes.
func (e *entry) copy(ctx context.Context) error {
	var err error
	switch e.kind() {
	case unix.S_IFREG:
		err = e.copyData(ctx)
	case unix.S_IFLNK:
		err = e.copyLink()
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
		err = os.NewSyscallError("mknodat",
			unix.Mknodat(e.dstFD(), e.name, e.kind()|0o600, int(e.stat.Rdev)))
	default:
		err = fmt.Errorf("unknown file type %#o", e.kind())
	}
	if err != nil {
		return err
	}
	return e.copyAttributes()
}

func (e *entry) copyData(ctx context.Context) (err error) {
	// Not blocking, for a FIFO that took the file's place meanwhile.
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	src, err := e.open(e.srcFD(), flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()

	found := e.stat
	if err := unix.Fstat(int(src.Fd()), &e.stat); err != nil {
		return err
	}
	if identityOf(&found) != identityOf(&e.stat) {
		return ErrChanged
	}
	dst, err := e.open(e.dstFD(), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	return blockio.Copy(ctx, dst, src)
}

func (e *entry) open(at, flags int) (*os.File, error) {
	fd, err := unix.Openat(at, e.name, flags, 0o600)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), strconv.Quote(e.name)), nil // for errors: a name may hold anything
}

func (e *entry) copyLink() error {
	// One byte more than the longest target, to notice one that is longer.
	target := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(e.srcFD(), e.name, target)
	if err != nil {
		return os.NewSyscallError("readlinkat", err)
	}
	if n == len(target) {
		return fmt.Errorf("read symbolic link: %w", unix.ENAMETOOLONG)
	}
	return os.NewSyscallError("symlinkat", unix.Symlinkat(string(target[:n]), e.dstFD(), e.name))
}
