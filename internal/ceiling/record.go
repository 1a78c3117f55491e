//go:build linux

package ceiling

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// record writes a record beside a volume: a new file renamed over the old one;
// without Sync the two change places, as package record does.
func (v *life) record(dir string, first bool) error {
	from, to := filepath.Join(dir, ".new"), filepath.Join(dir, "record.json")
	fd, err := unix.Open(from, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, v.c.Record)
	err = errors.Join(err, v.flush(fd), unix.Close(fd))
	switch {
	case err != nil:
		return err
	case first || v.c.Sync:
		err = unix.Rename(from, to)
	default:
		err = exchange(from, to)
	}
	if first {
		err = errors.Join(err, v.flushDir(filepath.Dir(dir)))
	}
	return errors.Join(err, v.flushDir(dir))
}

func exchange(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		return unix.Rename(from, to)
	}
	return err
}

// forget removes a record and its directory.
func (v *life) forget(dir string) error {
	deleted := filepath.Join(dir, ".deleted")
	err := errors.Join(unix.Rename(filepath.Join(dir, "record.json"), deleted), v.flushDir(dir))
	if e := unix.Unlink(filepath.Join(dir, ".new")); e != nil && !errors.Is(e, unix.ENOENT) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, unix.Unlink(deleted), unix.Rmdir(dir))
}

func (l *Lives) flush(fd int) error {
	if !l.c.Sync {
		return nil
	}
	return unix.Fsync(fd)
}

func (l *Lives) flushDir(dir string) error {
	if !l.c.Sync {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
