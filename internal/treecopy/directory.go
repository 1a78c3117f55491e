//go:build linux

package treecopy

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrChanged is returned when something is not where, or not what, it was a
// moment before.
var ErrChanged = errors.New("tree was changed while it was copied")

// identity tells one file of a file system from another.
type identity struct{ dev, ino uint64 }

func identityOf(st *unix.Stat_t) identity { return identity{uint64(st.Dev), st.Ino} }

// directory is one level of the walk: a directory and its copy.
type directory struct {
	name string
	// src and dst are nil while the walk is far below.
	src, dst *os.File
	// stat is what src was when the walk came to it.
	stat unix.Stat_t
	// dstID is what dst was then.
	dstID identity
	// pending are the directories in it that are not copied yet.
	pending []string
}

// newDirectory takes src and dst, and closes them if it fails.
func newDirectory(name string, src, dst *os.File) (*directory, error) {
	d := &directory{name: name, src: src, dst: dst}
	var st unix.Stat_t
	err := unix.Fstat(int(dst.Fd()), &st)
	if err == nil {
		d.dstID = identityOf(&st)
		err = unix.Fstat(int(src.Fd()), &d.stat)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// makeDirectory makes the copy of the directory name in parent, without its
// contents and attributes.
func makeDirectory(parent *directory, name string) (*directory, error) {
	src, err := openDirectory(int(parent.src.Fd()), name)
	if err != nil {
		return nil, err
	}
	// Closed to everyone until its attributes are set.
	if err := unix.Mkdirat(int(parent.dst.Fd()), name, 0o700); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	dst, err := openDirectory(int(parent.dst.Fd()), name)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return newDirectory(name, src, dst)
}

// reopenAbove opens d again, as the parent of child, if it was closed.
func (d *directory) reopenAbove(child *directory) (err error) {
	if d.src != nil {
		return nil
	}
	if d.src, err = openParent(child.src, identityOf(&d.stat)); err != nil {
		return err
	}
	d.dst, err = openParent(child.dst, d.dstID)
	return err
}

func (d *directory) close() error {
	var errs []error
	for _, f := range []*os.File{d.src, d.dst} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	d.src, d.dst = nil, nil
	return errors.Join(errs...)
}

func openDirectory(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openParent opens the directory above child, which must be the one that the
// walk came from: a moved directory would lead it elsewhere.
func openParent(child *os.File, want identity) (*os.File, error) {
	parent, err := openDirectory(int(child.Fd()), "..")
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(parent.Fd()), &st); err != nil {
		return nil, errors.Join(err, parent.Close())
	}
	if identityOf(&st) != want {
		return nil, errors.Join(ErrChanged, parent.Close())
	}
	return parent, nil
}
