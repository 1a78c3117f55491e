//go:build linux

package treecopy_test

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// facts are what a file system keeps of a file, apart from its bytes.
type facts struct {
	Mode, UID, GID uint32
	Device         uint64
	Size           int64
	Accessed       time.Time
	Modified       time.Time
	// Links is the first of the tree's names of the same file.
	Links string
	// Attributes are all extended attributes.
	Attributes map[string]string
}

// tree reads the facts of everything in dir, by path below dir, without
// changing any of them.
func tree(tb testing.TB, dir string) map[string]facts {
	tb.Helper()
	all := make(map[string]facts)
	first := make(map[uint64]string)
	var visit func(name string)
	visit = func(name string) {
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		require.NoError(tb, unix.Lstat(path, &st))
		if _, found := first[st.Ino]; !found {
			first[st.Ino] = name
		}
		f := facts{
			Mode: st.Mode, UID: st.Uid, GID: st.Gid, Size: st.Size,
			Accessed: time.Unix(st.Atim.Unix()), Modified: time.Unix(st.Mtim.Unix()),
			Links: first[st.Ino], Attributes: attributes(tb, path),
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFBLK {
			f.Device = uint64(st.Rdev)
		}
		if isDir {
			f.Size = 0 // the size of a directory is its file system's matter
		}
		all[name] = f
		if isDir {
			for _, child := range list(tb, path) {
				visit(filepath.Join(name, child))
			}
		}
	}
	visit(".")
	return all
}

// list returns the sorted names in dir and leaves its access time.
func list(tb testing.TB, dir string) []string {
	tb.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	require.NoError(tb, err)
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	require.NoError(tb, err)
	slices.Sort(names)
	return names
}

func attributes(tb testing.TB, path string) map[string]string {
	tb.Helper()
	p := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, p)
	require.NoError(tb, err)
	all := make(map[string]string)
	for name := range strings.SplitSeq(string(p[:n]), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(path, name, value)
		require.NoError(tb, err)
		all[name] = string(value[:n])
	}
	return all
}

// contents reads what the files and symbolic links in dir hold. It changes
// access times.
func contents(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	all := make(map[string]string)
	require.NoError(tb, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch d.Type() {
		case 0:
			all[name], err = digest(path)
		case os.ModeSymlink:
			all[name], err = os.Readlink(path)
		}
		return err
	}))
	return all
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return string(hash.Sum(nil)), err
}

// setTimes gives everything in dir times of its own, down to the nanosecond,
// the deepest first because that changes those above.
func setTimes(tb testing.TB, dir string) {
	tb.Helper()
	var paths []string
	require.NoError(tb, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}))
	for i := len(paths) - 1; i >= 0; i-- {
		times := []unix.Timespec{{Sec: 1e9 + int64(i), Nsec: 123456789}, {Sec: 1.1e9 + int64(i), Nsec: 987654321}}
		require.NoError(tb, unix.UtimesNanoAt(unix.AT_FDCWD, paths[i], times, unix.AT_SYMLINK_NOFOLLOW))
	}
}
