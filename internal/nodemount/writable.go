//go:build linux

package nodemount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
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
	return nil
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

// mountRequest and mountAnswer are struct mnt_id_req and the head of struct
// statmount, see statmount(2).
type mountRequest struct {
	size, spare   uint32
	id, want, uns uint64
}

type mountAnswer struct {
	size, options uint32 // options is an offset into the text behind the head
	mask          uint64
	_             [496]byte
}

func statmountOptions(id uint64) (string, error) {
	const wantOptions = 0x80 // STATMOUNT_MNT_OPTS
	req := mountRequest{size: uint32(unsafe.Sizeof(mountRequest{})), id: id, want: wantOptions}
	head := int(unsafe.Sizeof(mountAnswer{}))
	for size := 4096; ; size *= 4 {
		buf := make([]byte, size)
		_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&req)), uintptr(unsafe.Pointer(&buf[0])), uintptr(size), 0, 0, 0)
		switch {
		case errno == unix.EOVERFLOW && size < 1<<20:
			continue
		case errno != 0:
			return "", errno
		case binary.NativeEndian.Uint64(buf[8:])&wantOptions == 0:
			return "", nil
		}
		text, _, _ := bytes.Cut(buf[head+int(binary.NativeEndian.Uint32(buf[4:])):], []byte{0})
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
