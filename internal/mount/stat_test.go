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

func TestStat(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	outside, err := mount.Stat(dir)
	require.NoError(t, err)
	require.True(t, outside.Dir)
	require.False(t, outside.IsRoot)
	require.NotZero(t, outside.ID)

	target := tmpfsOn(t, dirIn(t, dir, "target"))
	root, err := mount.Stat(target)
	require.NoError(t, err)
	require.True(t, root.IsRoot)
	require.True(t, root.Dir)
	require.False(t, root.Dead)
	require.NotEqual(t, outside.ID, root.ID)
	require.NotEqual(t, outside.Dev, root.Dev)
	require.Zero(t, root.Rdev)
	require.Equal(t, entryOf(t, target).Dev, root.Dev, "the device of mountinfo")

	inside, err := mount.Stat(dirIn(t, target, "inside"))
	require.NoError(t, err)
	require.False(t, inside.IsRoot)
	require.Equal(t, root.ID, inside.ID)
	require.Equal(t, root.Dev, inside.Dev)

	bound := dirIn(t, dir, "bound")
	require.NoError(t, mount.Bind(t.Context(), target, bound, mount.Options{}))
	other, err := mount.Stat(bound)
	require.NoError(t, err)
	require.NotEqual(t, root.ID, other.ID, "another mount")
	other.ID = root.ID
	require.Equal(t, root, other, "of the same root")
	require.NoError(t, mount.Unmount(bound))
}

func TestStatOfWhatIsNoMount(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	dirIn(t, dir, "dir")
	fileIn(t, dir, "file", "")
	require.NoError(t, os.Symlink("dir", filepath.Join(dir, "link")))

	info, err := mount.Stat(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.False(t, info.Dir)
	require.False(t, info.IsRoot)

	info, err = mount.Stat(filepath.Join(dir, "link"))
	require.NoError(t, err)
	require.False(t, info.Dir, "the link, not what it names")

	for name, c := range map[string]struct {
		path string
		kind error
	}{
		"missing":                   {"none", backends.ErrNotFound},
		"below what is missing":     {"none/target", backends.ErrNotFound},
		"below a file":              {"file/target", backends.ErrNotFound},
		"below a symbolic link":     {"link/target", backends.ErrInvalid},
		"a link in a link's target": {"link/../link", nil}, // cleaned by Join
	} {
		_, err := mount.Stat(filepath.Join(dir, c.path))
		require.ErrorIs(t, err, c.kind, name)
	}
	_, err = mount.Stat(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestStatOfADeadMount(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	target := dirIn(t, workDir(t), "target")
	_, device := mountFUSE(t, target)
	require.NoError(t, device.Close())

	info, err := mount.Stat(target)
	require.NoError(t, err)
	require.Equal(t, mount.Info{IsRoot: true, Dead: true}, info)

	_, err = mount.Stat(filepath.Join(target, "inside"))
	require.ErrorIs(t, err, mount.ErrDead)
	_, err = mount.StatFS(target)
	require.ErrorIs(t, err, mount.ErrDead)
	_, err = mount.MakeDirTarget(target)
	require.ErrorIs(t, err, mount.ErrDead)
	require.ErrorIs(t, mount.RemoveTarget(target), mount.ErrDead)
	require.NoError(t, mount.Unmount(target))
}

// What the kernel remembers of a file system must not hide that its server died.
func TestStatAsksTheFileSystem(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	target := dirIn(t, workDir(t), "target")
	fd, device := mountFUSE(t, target)
	served := serveOnce(fd)
	info, err := mount.Stat(target)
	require.NoError(t, err)
	require.True(t, info.Dir)
	require.False(t, info.Dead)
	<-served
	require.NoError(t, device.Close())

	info, err = mount.Stat(target)
	require.NoError(t, err)
	require.True(t, info.Dead)
	require.NoError(t, mount.Unmount(target))
}

func TestStatOfAFileSystemThatAnswersWithErrors(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	for name, c := range map[string]struct {
		errno unix.Errno
		dead  bool
	}{
		"ESTALE":    {unix.ESTALE, true},
		"EIO":       {unix.EIO, true},
		"ENOTCONN":  {unix.ENOTCONN, true},
		"EHOSTDOWN": {unix.EHOSTDOWN, true},
		"EACCES":    {unix.EACCES, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := dirIn(t, workDir(t), "target")
			fd, _ := mountFUSE(t, target)
			served := serveErrno(fd, c.errno)
			info, err := mount.Stat(target)
			if c.dead {
				require.NoError(t, err)
				require.Equal(t, mount.Info{IsRoot: true, Dead: true}, info)
			} else {
				require.ErrorIs(t, err, c.errno)
			}
			require.NoError(t, mount.Unmount(target))
			<-served
		})
	}
}
