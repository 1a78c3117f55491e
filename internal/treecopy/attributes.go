//go:build linux

package treecopy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultACL is the attribute of a directory whose new entries inherit an ACL.
const defaultACL = "system.posix_acl_default"

// copyAttributes sets owner, extended attributes, mode and times. The order
// matters: a new owner takes set-id bits and capabilities away, an ACL changes
// the mode, and everything changes the times.
func (e *entry) copyAttributes() error {
	at := e.dstFD()
	err := unix.Fchownat(at, e.name, int(e.stat.Uid), int(e.stat.Gid), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	if err := copyXattrs(procPath(e.dir.dst, e.name), procPath(e.dir.src, e.name)); err != nil {
		return err
	}
	if e.kind() != unix.S_IFLNK { // a symbolic link has no mode of its own
		if err := unix.Fchmodat(at, e.name, permissions(&e.stat), 0); err != nil {
			return os.NewSyscallError("fchmodat", err)
		}
	}
	return setTimes(at, e.name, &e.stat)
}

// copyAttributes does the same for a directory, after all that is in it.
func (d *directory) copyAttributes() error {
	at := int(d.dst.Fd())
	if err := unix.Fchown(at, int(d.stat.Uid), int(d.stat.Gid)); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	if err := copyXattrs(procPath(d.dst, "."), procPath(d.src, ".")); err != nil {
		return err
	}
	if err := unix.Fchmod(at, permissions(&d.stat)); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return setTimes(at, ".", &d.stat)
}

func permissions(st *unix.Stat_t) uint32 { return uint32(st.Mode) & 0o7777 }

func setTimes(at int, name string, st *unix.Stat_t) error {
	times := []unix.Timespec{st.Atim, st.Mtim}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(at, name, times, unix.AT_SYMLINK_NOFOLLOW))
}

// procPath is a path to name in dir for system calls that know no descriptors
// of directories. The calls for attributes are such until Linux 6.13, and the
// ones for descriptors would have to open devices and FIFOs.
func procPath(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}

// copyXattrs gives dst the extended attributes of src. Neither is followed if
// it is a symbolic link.
func copyXattrs(dst, src string) error {
	list, err := grow(func(p []byte) (int, error) { return unix.Llistxattr(src, p) })
	if errors.Is(err, unix.EOPNOTSUPP) { // a file system without any
		return nil
	}
	if err != nil {
		return os.NewSyscallError("llistxattr", err)
	}
	for name := range strings.SplitSeq(string(list), "\x00") {
		if name == "" { // behind the last one
			continue
		}
		if err := copyXattr(dst, src, name); err != nil {
			return fmt.Errorf("copy attribute %s: %w", name, err)
		}
	}
	return nil
}

func copyXattr(dst, src, name string) error {
	value, err := grow(func(p []byte) (int, error) { return unix.Lgetxattr(src, name, p) })
	if err != nil {
		return os.NewSyscallError("lgetxattr", err)
	}
	// A label that the mount itself gives (SELinux's context=) is there already
	// and cannot be set.
	have, err := grow(func(p []byte) (int, error) { return unix.Lgetxattr(dst, name, p) })
	if err == nil && bytes.Equal(have, value) {
		return nil
	}
	return os.NewSyscallError("lsetxattr", unix.Lsetxattr(dst, name, value, 0))
}

// grow reads with a larger buffer until the answer fits.
func grow(read func([]byte) (int, error)) ([]byte, error) {
	for size := 256; ; size *= 4 {
		p := make([]byte, size)
		n, err := read(p)
		if errors.Is(err, unix.ERANGE) && size < 1<<20 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return p[:n], nil
	}
}
