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

func TestMakeAndRemoveTarget(t *testing.T) {
	t.Parallel()
	need(t)
	for name, c := range map[string]struct {
		make func(string) (bool, error)
		dir  bool
	}{
		"a directory": {mount.MakeDirTarget, true},
		"a file":      {mount.MakeFileTarget, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := filepath.Join(workDir(t), "target")
			created, err := c.make(target)
			require.NoError(t, err)
			require.True(t, created)
			stat, err := os.Lstat(target)
			require.NoError(t, err)
			require.Equal(t, c.dir, stat.IsDir())
			require.Zero(t, stat.Mode().Perm()&0o027, "nobody else writes, others do not look in")

			created, err = c.make(target)
			require.NoError(t, err)
			require.False(t, created, "it is there already")

			require.NoError(t, mount.RemoveTarget(target))
			require.NoFileExists(t, target)
			require.NoDirExists(t, target)
			require.NoError(t, mount.RemoveTarget(target), "it is gone already")
		})
	}
}

func TestMakeTargetWhereSomethingIs(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	fileIn(t, dirIn(t, dir, "full dir"), "file", "")
	fileIn(t, dir, "full file", "content")
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, os.Symlink("full dir", filepath.Join(dir, "link to dir")))
	require.NoError(t, os.Symlink("full file", filepath.Join(dir, "link to file")))
	require.NoError(t, os.Symlink("none", filepath.Join(dir, "dangling link")))
	for path, want := range map[string]struct{ asDir, asFile error }{
		"full dir":           {nil, backends.ErrExists},
		"full file":          {backends.ErrExists, nil},
		"fifo":               {backends.ErrExists, nil},
		"link to dir":        {backends.ErrInvalid, backends.ErrInvalid},
		"link to file":       {backends.ErrInvalid, backends.ErrInvalid},
		"dangling link":      {backends.ErrInvalid, backends.ErrInvalid},
		"link to dir/target": {backends.ErrInvalid, backends.ErrInvalid},
		"none/target":        {backends.ErrNotFound, backends.ErrNotFound},
		"full file/target":   {backends.ErrNotFound, backends.ErrNotFound},
	} {
		created, err := mount.MakeDirTarget(filepath.Join(dir, path))
		require.ErrorIs(t, err, want.asDir, path)
		require.False(t, created, path)
		created, err = mount.MakeFileTarget(filepath.Join(dir, path))
		require.ErrorIs(t, err, want.asFile, path)
		require.False(t, created, path)
	}
	require.NoFileExists(t, filepath.Join(dir, "none"), "nothing was made through the dangling link")
	require.FileExists(t, filepath.Join(dir, "full dir", "file"))
}

func TestMakeTargetWhereSomethingIsMounted(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	target, file := tmpfsOn(t, dirIn(t, dir, "dir")), fileIn(t, dir, "file", "")
	created, err := mount.MakeDirTarget(target)
	require.NoError(t, err)
	require.False(t, created)
	require.ErrorIs(t, mount.RemoveTarget(target), mount.ErrBusy)

	require.NoError(t, mount.Bind(t.Context(), fileIn(t, dir, "source", "bytes"), file, mount.Options{}))
	created, err = mount.MakeFileTarget(file)
	require.NoError(t, err)
	require.False(t, created)
	require.ErrorIs(t, mount.RemoveTarget(file), mount.ErrBusy)
	require.NoError(t, mount.Unmount(file))
	require.NoError(t, mount.RemoveTarget(file))
}

func TestRemoveTargetKeepsWhatIsSomebodys(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	fileIn(t, dirIn(t, dir, "full dir"), "file", "")
	fileIn(t, dir, "full file", "content")
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, os.Symlink("full dir", filepath.Join(dir, "link")))
	for path, want := range map[string]error{
		"full dir":         backends.ErrPrecondition,
		"full file":        backends.ErrPrecondition,
		"fifo":             backends.ErrPrecondition,
		"link":             backends.ErrInvalid,
		"link/file":        backends.ErrInvalid,
		"none":             nil,
		"none/target":      nil,
		"full file/target": nil,
	} {
		require.ErrorIs(t, mount.RemoveTarget(filepath.Join(dir, path)), want, path)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 4)
	require.FileExists(t, filepath.Join(dir, "full dir", "file"))
}
