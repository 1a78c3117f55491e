package kernel

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// Reflink returns nil if two files in dir can share blocks (FICLONE), and a
// *NotSupportedError if not. It makes and removes two files of 4 KiB there; dir
// must exist and be writable.
func Reflink(dir string) error {
	const remedy = "keep the state directory on xfs (mkfs.xfs -m reflink=1, its default) or btrfs"
	source, err := scratchFile(dir)
	if err != nil {
		return missing(ReflinkFeature, "", "%v", err)
	}
	defer source.Close()
	target, err := scratchFile(dir)
	if err != nil {
		return missing(ReflinkFeature, "", "%v", err)
	}
	defer target.Close()
	if _, err := source.Write(bytes.Repeat([]byte{1}, 4096)); err != nil {
		return missing(ReflinkFeature, "", "write to a file in %s: %v", dir, err)
	}
	if err := unix.IoctlFileClone(int(target.Fd()), int(source.Fd())); err != nil {
		return missing(ReflinkFeature, remedy, "clone a file in %s: %v", dir, err)
	}
	return nil
}

// DirectIO returns nil if files in dir can be opened with O_DIRECT, and a
// *NotSupportedError if not. It makes and removes an empty file there; dir must
// exist and be writable.
func DirectIO(dir string) error {
	const remedy = "keep the state directory on ext4, xfs or btrfs, or do not ask for direct I/O"
	file, err := scratchFile(dir)
	if err != nil {
		return missing(DirectIOFeature, "", "%v", err)
	}
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, unix.O_DIRECT); err != nil {
		return missing(DirectIOFeature, remedy, "set O_DIRECT on a file in %s: %v", dir, err)
	}
	return nil
}

// scratchFile makes a file without a name, so that not even a killed process
// leaves one; where the file system has no such files it is unlinked at once.
func scratchFile(dir string) (*os.File, error) {
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	file, err := os.CreateTemp(dir, ".csiemu-probe-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
