package testenv

import (
	"errors"
	"syscall"
)

// IsNoSpace says whether an error of a write is that of a full file system or
// device.
func IsNoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// IsReadOnly says whether an error of an open or a write is that of something
// that refuses all writes, even those of root.
func IsReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
}
