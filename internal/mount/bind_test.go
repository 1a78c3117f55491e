//go:build linux

package mount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestBindDirectory(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	source, target := dirIn(t, dir, "source"), dirIn(t, dir, "target")
	require.NoError(t, mount.Bind(t.Context(), source, target, mount.Options{}))

	fileIn(t, target, "file", "written through the bind")
	content, err := os.ReadFile(filepath.Join(source, "file"))
	require.NoError(t, err)
	require.Equal(t, "written through the bind", string(content))
	require.NoError(t, mount.Unmount(target))
	require.NoFileExists(t, filepath.Join(target, "file"))
}

func TestBindFile(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	source, target := fileIn(t, dir, "source", "bytes"), fileIn(t, dir, "target", "")
	require.NoError(t, mount.Bind(t.Context(), source, target, options(t, "ro")))
	content, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "bytes", string(content))
	require.ErrorIs(t, os.WriteFile(target, nil, 0o644), unix.EROFS)
	require.NoError(t, mount.Unmount(target))
}

func TestBindDeviceNode(t *testing.T) {
	t.Parallel()
	need(t, kernel.Mknod)
	dir := workDir(t)
	// Loop device numbers past the highest: the node opens nothing.
	number := unix.Mkdev(7, 1<<20-1)
	source, target := filepath.Join(dir, "node"), fileIn(t, dir, "target", "")
	require.NoError(t, unix.Mknod(source, unix.S_IFBLK|0o600, int(number)))
	require.NoError(t, mount.Bind(t.Context(), source, target, mount.Options{}))

	info, err := mount.Stat(target)
	require.NoError(t, err)
	require.Equal(t, number, info.Rdev)
	require.True(t, info.IsRoot)
	require.False(t, info.Dir)
	bare, err := mount.Stat(source)
	require.NoError(t, err)
	require.Equal(t, number, bare.Rdev)
	require.False(t, bare.IsRoot)
	require.Equal(t, bare.Inode, info.Inode)
	require.NoError(t, mount.Unmount(target))
}

func TestBindAttributes(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	for name, c := range map[string]struct{ source, flags, want string }{
		"none":                             {"", "", "rw,relatime"},
		"those of the source stay":         {"nosuid,noexec,noatime", "", "rw,nosuid,noexec,noatime"},
		"more than the source has":         {"nosuid,noatime", "ro,nodev", "ro,nosuid,nodev,noatime"},
		"the source's taken back":          {"ro,nosuid,nodev,noexec,nodiratime", "rw,suid,dev,exec,diratime", "rw,relatime"},
		"another kind of access times":     {"noatime", "strictatime", "rw"},
		"access times taken back":          {"noatime", "atime", "rw,relatime"},
		"no access times":                  {"strictatime", "noatime,nodiratime", "rw,noatime,nodiratime"},
		"no following of links":            {"", "nosymfollow", "rw,relatime,nosymfollow"},
		"links followed again":             {"nosymfollow", "symfollow", "rw,relatime"},
		"notes for other programs are not": {"", "defaults,nofail,noexec", "rw,noexec,relatime"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t)
			source, target := dirIn(t, dir, "source"), dirIn(t, dir, "target")
			tmpfsOn(t, source, c.source)
			before := entryOf(t, source)
			require.NoError(t, mount.Bind(t.Context(), source, target, options(t, c.flags)))
			require.Equal(t, c.want, entryOf(t, target).Options)
			require.Equal(t, before, entryOf(t, source), "the source is left as it is")
			require.NoError(t, mount.Unmount(target))
		})
	}
}

func TestBindReadOnlyLeavesTheFileSystemWritable(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	source, target := dirIn(t, dir, "source"), dirIn(t, dir, "target")
	tmpfsOn(t, source)
	require.NoError(t, mount.Bind(t.Context(), source, target, options(t, "ro")))
	require.ErrorIs(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o644), unix.EROFS)
	fileIn(t, source, "file", "")
	require.FileExists(t, filepath.Join(target, "file"))
	e := entryOf(t, target)
	require.Equal(t, "ro,relatime", e.Options)
	require.Regexp(t, "^rw", e.SuperOptions)
	require.NoError(t, mount.Unmount(target))
}

func TestBindOfAReadOnlyFileSystemStaysReadOnly(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	source, target := dirIn(t, dir, "source"), dirIn(t, dir, "target")
	tmpfsOn(t, source, "ro")
	require.NoError(t, mount.Bind(t.Context(), source, target, options(t, "rw")))
	require.ErrorIs(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o644), unix.EROFS)
	require.NoError(t, mount.Unmount(target))
}

func TestBindTakesNoMountsAlong(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	source, target := dirIn(t, dir, "source"), dirIn(t, dir, "target")
	inner := tmpfsOn(t, dirIn(t, source, "inner"))
	fileIn(t, inner, "file", "")
	require.NoError(t, mount.Bind(t.Context(), source, target, mount.Options{}))
	require.DirExists(t, filepath.Join(target, "inner"))
	require.NoFileExists(t, filepath.Join(target, "inner", "file"))
	entryOf(t, target)
	require.NoError(t, mount.Unmount(target))
}

func TestBindRefuses(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	for _, name := range []string{"dir", "other"} {
		dirIn(t, dir, name)
	}
	fileIn(t, dir, "file", "")
	require.NoError(t, os.Symlink("other", filepath.Join(dir, "link")))
	for name, c := range map[string]struct {
		source, target, flags string
		kind                  error
		reason                string
	}{
		"a parameter of the file system":   {"dir", "other", "ro,nouuid,context=secret", backends.ErrInvalid, "options nouuid, context"},
		"a flag of the file system":        {"dir", "other", "sync", backends.ErrInvalid, "options sync"},
		"a directory on a file":            {"dir", "file", "", backends.ErrExists, "target is a file where a directory is wanted"},
		"a file on a directory":            {"file", "dir", "", backends.ErrExists, "target is a directory where a file is wanted"},
		"a source that is not there":       {"none", "dir", "", backends.ErrNotFound, "none"},
		"a target that is not there":       {"dir", "none", "", backends.ErrNotFound, "none"},
		"a source that is a symbolic link": {"link", "dir", "", backends.ErrInvalid, "symbolic link"},
		"a target that is a symbolic link": {"dir", "link", "", backends.ErrInvalid, "symbolic link"},
		"a relative source":                {"", "dir", "", backends.ErrInvalid, "not absolute"},
		"a relative target":                {"dir", "", "", backends.ErrInvalid, "not absolute"},
		"a way through a file":             {"dir", "file/x", "", backends.ErrNotFound, "file/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := func(name string) string {
				if name == "" {
					return "relative/path"
				}
				return filepath.Join(dir, name)
			}
			err := mount.Bind(t.Context(), in(c.source), in(c.target), options(t, c.flags))
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.reason)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	t.Cleanup(func() { requireNothingMounted(t, dir) })
}

// Who looks at the target while it is bound read-only and unbound again must
// never see the source through a writable mount.
func TestBindIsSeenWithAllItsAttributes(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	source, target := tmpfsOn(t, dirIn(t, dir, "source")), dirIn(t, dir, "target")
	inSource, err := mount.Stat(source)
	require.NoError(t, err)

	stop, stopped := make(chan struct{}), make(chan struct{})
	var seen, writable int
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			fd, err := unix.Open(target, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			var stat unix.Stat_t
			var fs unix.Statfs_t
			if unix.Fstat(fd, &stat) == nil && stat.Dev == inSource.Dev && unix.Fstatfs(fd, &fs) == nil {
				seen++
				if fs.Flags&unix.ST_RDONLY == 0 {
					writable++
				}
			}
			_ = unix.Close(fd)
		}
	}()
	for range fewer(200) {
		require.NoError(t, mount.Bind(t.Context(), source, target, options(t, "ro")))
		require.NoError(t, mount.Detach(target))
	}
	close(stop)
	<-stopped
	require.Zero(t, writable, "of %d looks", seen)
}
