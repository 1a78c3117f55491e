package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/rmtree"
	"github.com/csiemu/csiemu/internal/safepath"
)

// check refuses paths that are not written as they must be, or that lead
// through a symbolic link.
func check(path string) error {
	if err := safepath.CheckPath(path); err != nil {
		return err
	}
	return checkLinks(path)
}

// checkLinks refuses symbolic links on the way to path, or in its place. Those
// in the root directory, such as /tmp or /var on some systems, belong to the
// system.
func checkLinks(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		parent := filepath.Dir(dir)
		if parent == filepath.Dir(parent) {
			return nil
		}
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symbolic link; give the path behind it: %w", dir, backends.ErrInvalid)
		}
	}
}

// isAt says whether a place is there: a directory, or a file for block.
func isAt(path string, block bool) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case block:
		return info.Mode().IsRegular(), nil
	default:
		return info.IsDir(), nil
	}
}

// find says whether there is something at a path that can be used.
// backends.ErrExists is returned for something that cannot, and
// backends.ErrNotFound where the parent is missing.
func find(path string, block bool) (bool, error) {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(filepath.Dir(path)); err != nil {
			return false, fmt.Errorf("its parent directory is missing, which the caller makes: %w: %w", err, backends.ErrNotFound)
		}
		return false, nil
	case err != nil:
		return false, err
	}
	usable, err := isAt(path, block)
	if err == nil && !usable {
		err = fmt.Errorf("something else is there: %w", backends.ErrExists)
	}
	return usable, err
}

// The rights of places: the directory has those of the root of a fresh ext4.
// Those of a read-only place keep out who has no privileges.
const (
	dirMode          = 0o755
	fileMode         = 0o640
	readOnlyDirMode  = 0o555
	readOnlyFileMode = 0o440
)

// build makes a place that is not there.
func build(path string, block, readOnly bool) error {
	if !block {
		if err := os.Mkdir(path, dirMode); err != nil {
			return err
		}
		if readOnly {
			return os.Chmod(path, readOnlyDirMode)
		}
		return nil
	}
	var mode os.FileMode = fileMode
	if readOnly {
		mode = readOnlyFileMode
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

// raze removes a place that build made, with what was written into it. What is
// of another kind by now was put there by somebody else and stays.
func raze(ctx context.Context, path string, block, readOnly bool) error {
	there, err := isAt(path, block)
	if err != nil || !there {
		return err
	}
	if block {
		return os.Remove(path)
	}
	if readOnly {
		// It may hold what somebody with privileges wrote, and we may have none.
		if err := os.Chmod(path, dirMode); err != nil {
			return err
		}
	}
	return rmtree.Remove(ctx, path)
}

// share lets a group write to a directory, as far as this process may give it to
// that group.
func share(dir string, gid int) error {
	err := os.Chown(dir, -1, gid)
	if err == nil {
		err = os.Chmod(dir, dirMode|os.ModeSetgid|0o020)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || runtime.GOOS == "windows" {
		return nil
	}
	return err
}
