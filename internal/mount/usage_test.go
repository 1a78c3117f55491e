//go:build linux

package mount_test

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestStatFS(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	target := tmpfsOn(t, dirIn(t, dir, "target"), "size=1m,nr_inodes=64")
	empty, err := mount.StatFS(target)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, empty.Total)
	require.EqualValues(t, 1<<20, empty.Avail)
	require.Zero(t, empty.Used)
	require.EqualValues(t, 64, empty.Inodes)
	require.Equal(t, empty.Inodes, empty.InodesFree+empty.InodesUsed)

	file := fileIn(t, target, "file", string(make([]byte, 64<<10)))
	filled, err := mount.StatFS(target)
	require.NoError(t, err)
	require.EqualValues(t, 64<<10, filled.Used)
	require.EqualValues(t, 1<<20-64<<10, filled.Avail)
	require.Equal(t, empty.InodesUsed+1, filled.InodesUsed)

	_, err = mount.StatFS(file)
	require.ErrorIs(t, err, backends.ErrExists, "a file is refused")
	require.NoError(t, os.Symlink("target", dir+"/link"))
	_, err = mount.StatFS(dir + "/link")
	require.ErrorIs(t, err, backends.ErrInvalid, "a link is refused")
	_, err = mount.StatFS(dir + "/none")
	require.ErrorIs(t, err, backends.ErrNotFound)
}

func TestStatFSWithoutALimit(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := tmpfsOn(t, dirIn(t, workDir(t), "target"), "size=0,nr_inodes=0")
	usage, err := mount.StatFS(target)
	require.NoError(t, err)
	require.Equal(t, mount.Usage{}, usage, "tmpfs counts nothing then")

	proc, err := mount.StatFS("/proc")
	require.NoError(t, err)
	require.LessOrEqual(t, proc.Used, int64(math.MaxInt64))
	require.GreaterOrEqual(t, proc.Used, int64(0))
}
