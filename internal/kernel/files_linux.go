package kernel

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// probeCopyFileRange copies between two files that live in memory only.
func probeCopyFileRange() error {
	source, err := memoryFile()
	if err != nil {
		return missing(CopyFileRange, "", "%v", err)
	}
	defer unix.Close(source)
	target, err := memoryFile()
	if err != nil {
		return missing(CopyFileRange, "", "%v", err)
	}
	defer unix.Close(target)

	want := []byte("copy_file_range")
	if _, err := unix.Pwrite(source, want, 0); err != nil {
		return missing(CopyFileRange, "", "write a file in memory: %v", err)
	}
	from, to := int64(0), int64(0)
	if _, err := unix.CopyFileRange(source, &from, target, &to, len(want), 0); err != nil {
		return missing(CopyFileRange, remedyFor(err, "5.3"), "copy_file_range: %v", err)
	}
	got := make([]byte, len(want))
	if _, err := unix.Pread(target, got, 0); err != nil || !bytes.Equal(got, want) {
		return missing(CopyFileRange, "", "copy_file_range copied %q of %q", got, want)
	}
	return nil
}

// probeUserXattr sets an attribute on a file in memory: such files lie on the
// kernel's own tmpfs.
func probeUserXattr() error {
	fd, err := memoryFile()
	if err != nil {
		return missing(UserXattr, "", "%v", err)
	}
	defer unix.Close(fd)
	if err := unix.Fsetxattr(fd, "user.csiemu", []byte("probe"), 0); err != nil {
		return missing(UserXattr, "needs Linux 6.6 or newer, built with CONFIG_TMPFS_XATTR", "fsetxattr on tmpfs: %v", err)
	}
	return nil
}

func memoryFile() (int, error) {
	fd, err := unix.MemfdCreate("csiemu-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a file in memory: %w", err)
	}
	return fd, nil
}
