//go:build linux

package fusefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/mount"
)

// The names in the directory of a holder.
const (
	mountName   = "mount"
	controlName = "control"
	lockName    = "lock"
)

const (
	// subtype and sourcePrefix mark a mount as ours, in mountinfo.
	subtype      = "csiemu"
	sourcePrefix = "csiemu:"
)

func mountPoint(dir string) string { return filepath.Join(dir, mountName) }

// Path is the path of the served file.
func Path(dir string) string { return filepath.Join(mountPoint(dir), fileName) }

// Open opens the file that the holder of dir serves.
func Open(dir string, readOnly bool) (*os.File, error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	return os.OpenFile(Path(dir), flag|unix.O_NOFOLLOW, 0)
}

// Refresh makes the kernel ask the holder of dir for the size of the file.
func Refresh(dir string) error {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, Path(dir), unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
	if err != nil {
		return &os.PathError{Op: "statx", Path: Path(dir), Err: err}
	}
	return nil
}

// clearMounts takes away what a holder that is gone left mounted in dir. An
// empty volume id stands for any. What is not ours is an error.
func clearMounts(dir, volumeID string) error {
	at := mountPoint(dir)
	all, err := mount.ListUnder(at)
	if err != nil {
		return err
	}
	for _, e := range all {
		mine := e.FSType == "fuse."+subtype && strings.HasPrefix(e.Source, sourcePrefix) &&
			(volumeID == "" || e.Source == sourcePrefix+volumeID)
		if !mine {
			return fmt.Errorf("%s of type %s is mounted at %s", e.Source, e.FSType, e.MountPoint)
		}
	}
	for range all {
		if err := mount.Detach(at); err != nil {
			return err
		}
	}
	return nil
}

func removeControl(dir string) error {
	if err := os.Remove(filepath.Join(dir, controlName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tryLock takes the lock of dir for as long as the file, or a copy of its
// descriptor, is open. It returns nil if a holder has it.
func tryLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, f.Close()
		}
		return nil, errors.Join(&os.PathError{Op: "flock", Path: f.Name(), Err: err}, f.Close())
	}
}
