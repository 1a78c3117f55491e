//go:build linux

package nodemount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

// CheckWritable returns backends.ErrPrecondition when the file system mounted at
// path, which was mounted for writing, refuses writes by now: after an error it
// made itself read-only (ydb-platform/nbs#2936).
func CheckWritable(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("ask what is mounted at %s: %w: %w", path, err, backends.ErrPrecondition)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("file system at %s is read-only, by an error or by someone's remount: %w", path, backends.ErrPrecondition)
	}
	// A file system that was shut down still answers statfs, not always open.
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("file system at %s does not answer: %w: %w", path, err, backends.ErrPrecondition)
	}
	if err := dir.Close(); err != nil {
		return err
	}
	options, err := kernelOptions(path)
	if err != nil {
		return err
	}
	for _, state := range []string{"emergency_ro", "shutdown"} {
		if slices.Contains(options, state) {
			return fmt.Errorf("file system at %s refuses writes after an error (%s): %w", path, state, backends.ErrPrecondition)
		}
	}
	return tryAfterErrors(path)
}

// namesStates says whether the kernel tells by mount options that an ext4 was
// shut down or turned itself read-only (Linux 6.15).
func namesStates() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var major, minor int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major > 6 || major == 6 && minor >= 15)
}

// tryAfterErrors writes to an ext4 that has met an error, and on kernels that
// name no states to any. Kernels between those that make such a file system
// read-only and those that call it emergency_ro (ext4, "don't set SB_RDONLY
// after filesystem errors") show it by nothing else.
func tryAfterErrors(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("ask what is mounted at %s: %w", path, err)
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil // not on a block device
	}
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	if err != nil || (namesStates() && strings.TrimSpace(string(count)) == "0") {
		return nil // not ext4, or without an error
	}
	fd, err := unix.Open(path, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EIO), errors.Is(err, unix.EUCLEAN):
		return fmt.Errorf("file system at %s refuses writes after an error: %w: %w", path, err, backends.ErrPrecondition)
	}
	return nil // full, for one, which is no error of the file system
}

// kernelOptions are the options of the file system at path as the kernel tells
// them. They are empty before Linux 6.11, which cannot be asked for one mount;
// ext4 says there by ST_RDONLY what it says by an option from 6.15 on.
func kernelOptions(path string) ([]string, error) {
	info, err := mount.Stat(path)
	if err != nil {
		return nil, err
	}
	text, err := statmountOptions(info.ID)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the options of the mount at %s: %w", path, err)
	}
	return split(text), nil
}

// statmountOptions asks statmount(2), for which x/sys has no wrapper, for the
// options of a file system. The answer, struct statmount, has a head of fixed
// size and texts behind it.
func statmountOptions(id uint64) (string, error) {
	const (
		wanted     = 0x80 // STATMOUNT_MNT_OPTS
		headBytes  = 512
		textOffset = 4 // of the options' offset in the text
		maskOffset = 8 // of the fields that are there
	)
	request := struct {
		size, _        uint32
		mountID, param uint64
	}{size: 24, mountID: id, param: wanted} // MNT_ID_REQ_SIZE_VER0
	for size := 4096; ; size *= 4 {
		answer := make([]byte, size)
		_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)), uintptr(unsafe.Pointer(&answer[0])), uintptr(size), 0, 0, 0)
		switch {
		case errno == unix.EOVERFLOW && size < 1<<20:
			continue
		case errno != 0:
			return "", errno
		case binary.NativeEndian.Uint64(answer[maskOffset:])&wanted == 0:
			return "", nil
		}
		start := headBytes + int(binary.NativeEndian.Uint32(answer[textOffset:]))
		text, _, _ := bytes.Cut(answer[min(start, size):], []byte{0})
		return string(text), nil
	}
}

// isReadOnly says whether the mount at path refuses writes, be it by an attribute
// of the mount or by its file system.
func isReadOnly(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("ask what is mounted at %s: %w", path, err)
	}
	return st.Flags&unix.ST_RDONLY != 0, nil
}
