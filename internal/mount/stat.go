//go:build linux

package mount

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Since Linux 6.8; older kernels leave the bit out of their answer.
const statxMountIDUnique = unix.STATX_MNT_ID_UNIQUE

// Info is what the kernel says about a path.
type Info struct {
	// ID is the id of the mount that holds the path. From Linux 6.8 it is never
	// used again while the machine runs; before, it may be. 0 if Dead.
	ID uint64
	// Dev and Inode are the device number and inode number of what is seen at
	// the path. 0 if Dead.
	Dev, Inode uint64
	// IsRoot is true when something is mounted at the path: what is seen there
	// is the root of its mount. For a bound file that is the file.
	IsRoot bool
	// Dir is true for a directory.
	Dir bool
	// Rdev is the device number of the device node that is seen at the path, 0
	// if it is none.
	Rdev uint64
	// Dead is true when the file system that is mounted there answers nothing
	// but ENOTCONN, ESTALE, EHOSTDOWN or EIO. IsRoot is true as well then.
	Dead bool
}

// Stat asks the kernel about path. It takes one open and one statx, whatever
// the number of mounts, and does not keep a mount busy for longer than that.
// backends.ErrNotFound is returned when there is nothing, backends.ErrInvalid
// for a symbolic link on the way; a link as the last element is described, not
// followed. A path inside a dead mount is ErrDead.
func Stat(path string) (Info, error) {
	l, err := openPlace(path)
	if err != nil {
		return Info{}, fmt.Errorf("look at path: %w", err)
	}
	defer l.close()
	info, err := l.info()
	if err != nil {
		return Info{}, fmt.Errorf("look at path %s: %w", path, err)
	}
	return info, nil
}

func (l place) info() (Info, error) {
	stat, err := l.stat()
	switch {
	case err == nil:
		return infoOf(stat), nil
	case isDead(err):
		root, rootErr := l.isDeadRoot()
		if rootErr == nil && root {
			return Info{IsRoot: true, Dead: true}, nil
		}
	}
	return Info{}, pathError(err)
}

func infoOf(stat unix.Statx_t) Info {
	info := Info{
		ID:     stat.Mnt_id,
		Dev:    unix.Mkdev(stat.Dev_major, stat.Dev_minor),
		Inode:  stat.Ino,
		IsRoot: stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		Dir:    stat.Mode&unix.S_IFMT == unix.S_IFDIR,
	}
	if kind := stat.Mode & unix.S_IFMT; kind == unix.S_IFBLK || kind == unix.S_IFCHR {
		info.Rdev = unix.Mkdev(stat.Rdev_major, stat.Rdev_minor)
	}
	return info
}

// isDeadRoot reports whether another mount begins at the place than holds its
// directory. It asks nothing of the file system there: opening by O_PATH and
// reading the mount id out of fdinfo need only what the kernel itself keeps.
func (l place) isDeadRoot() (bool, error) {
	fd, err := l.open(0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	here, err := mountIDOf(fd)
	if err != nil {
		return false, err
	}
	around, err := mountIDOf(l.dir)
	return here != around, err
}

// mountIDOf reads the id, as mountinfo has it, of the mount that a descriptor
// lies in.
func mountIDOf(fd int) (uint64, error) {
	data, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("descriptor %d has no mount id", fd)
}
