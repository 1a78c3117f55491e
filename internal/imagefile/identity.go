//go:build linux

package imagefile

import (
	"os"

	"golang.org/x/sys/unix"
)

// Identity tells a file from all others that exist on this machine, whatever
// their paths. A loop device tells that of its backing file.
type Identity struct{ Dev, Inode uint64 }

// IdentityOf is the identity of an open file.
func IdentityOf(f *os.File) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return Identity{st.Dev, st.Ino}, nil
}

// IdentityAt is the identity of the file or directory at path. A symbolic link
// is not followed.
func IdentityAt(path string) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Identity{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return Identity{st.Dev, st.Ino}, nil
}
