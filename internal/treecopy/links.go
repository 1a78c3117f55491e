//go:build linux

package treecopy

import (
	"crypto/rand"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// links finds the copy of a file again at its second name. A path to the first
// name may be too long, and an open descriptor a file would be too many, so
// such a file gets one more name, in a directory that exists during the copy
// only.
type links struct {
	// root is the root of the destination.
	root *os.File
	// stage is the directory with the extra names; nil before the first one.
	stage     *os.File
	stageName string
	// first holds the files of which names are still to come.
	first map[identity]*staged
	// made counts the extra names that were ever made.
	made int
}

type staged struct {
	name string
	// left is how many names of the file were not met yet. It stays above zero
	// for a file that has names outside the tree.
	left uint64
}

// link makes e one more name of a file that was copied before. It reports false
// for a file that was not.
func (l *links) link(e entry) (bool, error) {
	id := identityOf(&e.stat)
	s := l.first[id]
	if s == nil {
		return false, nil
	}
	if err := unix.Linkat(int(l.stage.Fd()), s.name, e.dstFD(), e.name, 0); err != nil {
		return false, os.NewSyscallError("linkat", err)
	}
	if s.left--; s.left > 0 {
		return true, nil
	}
	// An inode of tmpfs is charged for each name: give it back soon.
	delete(l.first, id)
	return true, os.NewSyscallError("unlinkat", unix.Unlinkat(int(l.stage.Fd()), s.name, 0))
}

// remember keeps the copy of e, which was just made, for its further names.
func (l *links) remember(e entry) error {
	if err := l.openStage(); err != nil {
		return err
	}
	name := strconv.Itoa(l.made)
	if err := unix.Linkat(e.dstFD(), e.name, int(l.stage.Fd()), name, 0); err != nil {
		return os.NewSyscallError("linkat", err)
	}
	l.made++
	l.first[identityOf(&e.stat)] = &staged{name: name, left: uint64(e.stat.Nlink) - 1}
	return nil
}

func (l *links) openStage() error {
	if l.stage != nil {
		return nil
	}
	// The name is random, so that the tree cannot have it too.
	name := ".links-" + rand.Text()
	if err := unix.Mkdirat(int(l.root.Fd()), name, 0o700); err != nil {
		return os.NewSyscallError("mkdirat", err)
	}
	stage, err := openDirectory(int(l.root.Fd()), name)
	if err != nil {
		return err
	}
	l.stage, l.stageName, l.first = stage, name, make(map[identity]*staged)
	return nil
}

// removeStage removes the extra names and their directory.
func (l *links) removeStage() error {
	if l.stage == nil {
		return nil
	}
	for _, s := range l.first {
		if err := unix.Unlinkat(int(l.stage.Fd()), s.name, 0); err != nil {
			return os.NewSyscallError("unlinkat", err)
		}
	}
	clear(l.first)
	return os.NewSyscallError("unlinkat", unix.Unlinkat(int(l.root.Fd()), l.stageName, unix.AT_REMOVEDIR))
}

// close frees the descriptors. After a failed copy the extra names stay, as the
// rest of it does.
func (l *links) close() error {
	var errs []error
	for _, f := range []*os.File{l.root, l.stage} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
