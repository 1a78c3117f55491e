//go:build linux

package mount

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// The rights of what is made as a target. The mount hides them; without one,
// only root and its group look in.
const (
	dirMode  = 0o750
	fileMode = 0o640
)

// MakeDirTarget makes the directory path, whose parent must exist. created is
// false when it exists already, empty or not. backends.ErrExists is returned
// when something else is there, backends.ErrInvalid for symbolic links on the
// way or as the last element, backends.ErrNotFound when the parent is missing,
// ErrDead when a dead mount is there.
func MakeDirTarget(path string) (created bool, err error) {
	created, err = makeTarget(path, true, func(l place) error {
		return unix.Mkdirat(l.dir, l.name, dirMode)
	})
	if err != nil {
		return false, fmt.Errorf("make directory %s: %w", path, err)
	}
	return created, nil
}

// MakeFileTarget makes the empty file path, whose parent must exist, for a file
// or device node to be bound on. created is false when there is anything but a
// directory or symbolic link already. The errors are those of MakeDirTarget.
func MakeFileTarget(path string) (created bool, err error) {
	created, err = makeTarget(path, false, func(l place) error {
		return unix.Mknodat(l.dir, l.name, unix.S_IFREG|fileMode, 0)
	})
	if err != nil {
		return false, fmt.Errorf("make file %s: %w", path, err)
	}
	return created, nil
}

func makeTarget(path string, wantDir bool, create func(place) error) (created bool, err error) {
	l, err := openPlace(path)
	if err != nil {
		return false, err
	}
	defer l.close()
	err = retryInterrupted(func() error { return create(l) })
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, pathError(err)
	}
	stat, err := l.stat()
	if err != nil {
		return false, pathError(err)
	}
	switch kind := stat.Mode & unix.S_IFMT; {
	case kind == unix.S_IFLNK:
		return false, pathError(unix.ELOOP)
	case wantDir && kind != unix.S_IFDIR:
		return false, fmt.Errorf("a file is there: %w", backends.ErrExists)
	case !wantDir && kind == unix.S_IFDIR:
		return false, fmt.Errorf("a directory is there: %w", backends.ErrExists)
	}
	return false, nil
}

// RemoveTarget removes the last element of path: an empty directory or an empty
// file, which is what MakeDirTarget and MakeFileTarget make. Missing already is
// no error. backends.ErrPrecondition is returned for anything else, which is
// somebody's data, and ErrBusy while something is mounted there.
func RemoveTarget(path string) error {
	if err := removeTarget(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func removeTarget(path string) error {
	l, err := openPlace(path)
	if errors.Is(err, backends.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.close()
	stat, err := l.stat()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return pathError(err)
	}
	flags := 0
	switch kind := stat.Mode & unix.S_IFMT; {
	case stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return fmt.Errorf("something is mounted there: %w", ErrBusy)
	case kind == unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	case kind == unix.S_IFLNK:
		return pathError(unix.ELOOP)
	case kind != unix.S_IFREG || stat.Size != 0:
		return fmt.Errorf("it is not an empty file or directory: %w", backends.ErrPrecondition)
	}
	err = retryInterrupted(func() error { return unix.Unlinkat(l.dir, l.name, flags) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return classified(err)
	}
	return nil
}
