//go:build linux

package mount

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// Usage is what a file system says of its own space. Total is what it can hold,
// Avail what is left for users without privileges, Used what is taken, all in
// bytes; Avail and Used need not add up to Total, as some is kept for root. The
// inode figures are 0 where the file system does not count inodes.
type Usage struct {
	Total, Avail, Used             int64
	Inodes, InodesFree, InodesUsed int64
}

// StatFS asks the file system that holds the directory path. Anything but a
// directory is backends.ErrExists: of a device node, the answer would speak of
// the file system that the node lies on. The other errors are those of Stat,
// and ErrDead.
func StatFS(path string) (Usage, error) {
	stat, err := statFS(path)
	if err != nil {
		return Usage{}, fmt.Errorf("ask file system at %s: %w", path, err)
	}
	unit := int64(stat.Frsize) // int32 on some machines
	if unit <= 0 {
		unit = int64(stat.Bsize)
	}
	return Usage{
		Total:      bytesOf(stat.Blocks, unit),
		Avail:      bytesOf(stat.Bavail, unit),
		Used:       bytesOf(stat.Blocks-min(stat.Bfree, stat.Blocks), unit),
		Inodes:     bytesOf(stat.Files, 1),
		InodesFree: bytesOf(stat.Ffree, 1),
		InodesUsed: bytesOf(stat.Files-min(stat.Ffree, stat.Files), 1),
	}, nil
}

func statFS(path string) (stat unix.Statfs_t, err error) {
	l, err := openPlace(path)
	if err != nil {
		return stat, err
	}
	defer l.close()
	if dir, err := isDirectory(l.dir, l.name); err != nil {
		return stat, err
	} else if !dir {
		return stat, fmt.Errorf("it is not a directory: %w", backends.ErrExists)
	}
	// By name: a descriptor inside the mount would keep it busy. A link that
	// is swapped in now can but make the figures those of another directory.
	if err := retryInterrupted(func() error { return unix.Statfs(l.byDescriptor(), &stat) }); err != nil {
		return stat, pathError(err)
	}
	return stat, nil
}

// bytesOf multiplies without running past what an int64 holds: some file
// systems say "as much as you like".
func bytesOf(count uint64, unit int64) int64 {
	if unit > 0 && count > uint64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return int64(count) * unit
}
