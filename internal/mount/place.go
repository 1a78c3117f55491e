//go:build linux

package mount

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/safepath"
)

// A place is a path whose way was walked without symbolic links: the directory
// of its last element is open, and stays the same one whatever is renamed.
type place struct {
	path string
	dir  int // O_PATH
	name string
}

// openPlace walks to the directory of p. The place must be closed.
func openPlace(p string) (place, error) {
	if err := safepath.CheckPath(p); err != nil {
		return place{}, err
	}
	parent, name := path.Split(p)
	dir, err := openDir(path.Clean(parent))
	if err != nil {
		return place{}, fmt.Errorf("open directory of %s: %w", p, pathError(err))
	}
	return place{path: p, dir: dir, name: name}, nil
}

func (l place) close() { _ = unix.Close(l.dir) } // an O_PATH descriptor has nothing to flush

// open opens what lies, or is mounted, at the place itself. The descriptor is
// in use of that mount: while it is open nobody can unmount it.
func (l place) open(flags uint64) (int, error) {
	fd, err := openat2(l.dir, l.name, unix.O_PATH|flags)
	if err != nil {
		return -1, pathError(err)
	}
	return fd, nil
}

// stat asks for what lies, or is mounted, at the place itself and does not
// follow it if it is a symbolic link. The file system has to answer: what is
// remembered of a dead one does not count.
func (l place) stat() (unix.Statx_t, error) {
	var stat unix.Statx_t
	const wanted = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID | statxMountIDUnique
	err := retryInterrupted(func() error {
		return unix.Statx(l.dir, l.name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_FORCE_SYNC, wanted, &stat)
	})
	return stat, err
}

// byDescriptor is a path to the place for calls that take no descriptor. Its
// last element is not resolved by it: such a call must not follow links.
func (l place) byDescriptor() string {
	return "/proc/self/fd/" + strconv.Itoa(l.dir) + "/" + l.name
}

// openDir opens a directory without following symbolic links, but for the
// first element: the entries of "/" are the system's own.
func openDir(dir string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := openat2(unix.AT_FDCWD, dir, flags)
	if !errors.Is(err, unix.ELOOP) {
		return fd, err
	}
	first, rest, deeper := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	var top int
	err = retryInterrupted(func() (err error) {
		top, err = unix.Open("/"+first, flags|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil || !deeper {
		return top, err
	}
	defer unix.Close(top)
	return openat2(top, rest, flags)
}

// openat2 opens a path no element of which is a symbolic link.
func openat2(dir int, p string, flags uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	err = retryInterrupted(func() (err error) {
		fd, err = unix.Openat2(dir, p, &how)
		return err
	})
	if err != nil {
		return -1, unlessMissing(err, kernel.OpenAt2)
	}
	return fd, nil
}

// retryInterrupted repeats a call that a signal, such as the Go runtime's
// preemption, cut short.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
