//go:build linux

package mount_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
)

// image makes a sparse file with a file system on it.
func image(tb testing.TB, dir string, sizeBytes int64, mkfs ...string) string {
	tb.Helper()
	path := fileIn(tb, dir, "image", "")
	require.NoError(tb, os.Truncate(path, sizeBytes))
	if len(mkfs) > 0 {
		out, err := exec.CommandContext(tb.Context(), mkfs[0], append(mkfs[1:], path)...).CombinedOutput()
		require.NoErrorf(tb, err, "%s", out)
	}
	return path
}

func ext4Image(tb testing.TB, dir string) string {
	tb.Helper()
	return image(tb, dir, 16<<20, "mkfs.ext4", "-q", "-F")
}

// attach makes a loop device over an image until the test ends.
func attach(tb testing.TB, path string, readOnly bool) *loopdev.Device {
	tb.Helper()
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pool.Close()) })
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(tb, err)
	defer file.Close()
	d, err := pool.Attach(tb.Context(), file, loopdev.Config{Name: "test-" + rand.Text(), Autoclear: true, ReadOnly: readOnly})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		// A child before its exec may have a copy of the descriptor that Detach
		// closes; else the first answer is final.
		require.Eventually(tb, func() bool {
			inUse, err := pool.Detach(context.Background(), d) // the test's own has ended
			require.NoError(tb, err)
			return !inUse
		}, 5*time.Second, time.Millisecond, "%s is still in use", d.Path())
	})
	return d
}

func TestMountReadOnlyIsForTheFileSystemAsWell(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	d := attach(t, ext4Image(t, dir), false)

	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", options(t, "ro,noatime,errors=remount-ro")))
	e := entryOf(t, target)
	require.Equal(t, "ro,noatime", e.Options)
	require.Equal(t, "ro,errors=remount-ro", e.SuperOptions)
	require.Equal(t, unix.Mkdev(d.Major(), d.Minor()), e.Dev)
	require.ErrorIs(t, os.Mkdir(filepath.Join(target, "dir"), 0o755), unix.EROFS)
	require.NoError(t, mount.Unmount(target))

	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", options(t, "ro,rw")))
	dirIn(t, target, "dir")
	require.NoError(t, mount.Unmount(target))
}

func TestUnmountWritesOut(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	path := ext4Image(t, dir)
	d := attach(t, path, false)
	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", mount.Options{}))
	fileIn(t, target, "file", "written")
	require.True(t, needsRecovery(t, path))
	require.NoError(t, mount.Unmount(target))
	require.False(t, needsRecovery(t, path), "the journal is empty once it is unmounted")
}

func TestMountOfAWriteProtectedDevice(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	d := attach(t, ext4Image(t, dir), true)
	err := mount.Mount(t.Context(), d.Path(), target, "ext4", mount.Options{})
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorIs(t, err, unix.EACCES)
	requireNothingMounted(t, target)
	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", options(t, "ro")))
	require.NoError(t, mount.Unmount(target))
}

func TestMountOfABlankDevice(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4, kernel.XFS, kernel.Btrfs)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	d := attach(t, image(t, dir, 16<<20), false)
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		err := mount.Mount(t.Context(), d.Path(), target, fsType, mount.Options{})
		require.ErrorIs(t, err, unix.EINVAL, fsType)
		require.ErrorContains(t, err, d.Path(), fsType)
		requireNothingMounted(t, target)
	}
}

func TestMountOfADeviceInUse(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4, kernel.XFS)
	dir := workDir(t)
	target, other := dirIn(t, dir, "target"), dirIn(t, dir, "other")
	d := attach(t, ext4Image(t, dir), false)
	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", mount.Options{}))
	require.ErrorIs(t, mount.Mount(t.Context(), d.Path(), other, "xfs", mount.Options{}), mount.ErrBusy)
	requireNothingMounted(t, other)
	require.NoError(t, mount.Unmount(target))
	require.ErrorIs(t, mount.Mount(t.Context(), d.Path(), other, "xfs", mount.Options{}), unix.EINVAL, "it is no xfs")
}

func TestReplay(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	path := ext4Image(t, dir)
	d := attach(t, path, false)
	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", mount.Options{}))
	file, err := os.Create(filepath.Join(target, "file"))
	require.NoError(t, err)
	_, err = file.WriteString("in the journal")
	require.NoError(t, err)
	require.NoError(t, file.Sync())
	require.NoError(t, file.Close())

	// The image as a lost machine would leave it.
	crashed := copyFile(t, path, filepath.Join(dir, "crashed"))
	require.NoError(t, mount.Unmount(target))
	require.True(t, needsRecovery(t, crashed))

	after := attach(t, crashed, false)
	require.NoError(t, mount.Replay(t.Context(), after.Path(), "ext4", mount.Options{}))
	require.False(t, needsRecovery(t, crashed))
	requireUnclaimed(t, after)
	requireNothingMounted(t, dir)

	require.NoError(t, mount.Mount(t.Context(), after.Path(), target, "ext4", options(t, "ro,noload")))
	content, err := os.ReadFile(filepath.Join(target, "file"))
	require.NoError(t, err)
	require.Equal(t, "in the journal", string(content))
	require.NoError(t, mount.Unmount(target))
}

// While other goroutines start processes, their children have copies of all
// descriptors for a moment, also of those that hold the file system.
func TestReplayReleasesTheDeviceWhileProcessesStart(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	dir := workDir(t)
	d := attach(t, ext4Image(t, dir), false)
	defer startProcesses(t)()
	for range fewer(15) {
		require.NoError(t, mount.Replay(t.Context(), d.Path(), "ext4", mount.Options{}))
		requireUnclaimed(t, d)
	}
	target := dirIn(t, dir, "target")
	for range fewer(15) {
		require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "ext4", mount.Options{}))
		require.NoError(t, mount.Unmount(target))
		requireUnclaimed(t, d)
	}
}

// requireUnclaimed wants no file system to hold the device.
func requireUnclaimed(t *testing.T, d *loopdev.Device) {
	t.Helper()
	syscall.ForkLock.RLock() // children would have this descriptor, too
	defer syscall.ForkLock.RUnlock()
	claim, err := os.OpenFile(d.Path(), os.O_RDWR|unix.O_EXCL, 0)
	require.NoError(t, err)
	require.NoError(t, claim.Close())
}

func TestReplayOfABlankDevice(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.Ext4)
	d := attach(t, image(t, workDir(t), 16<<20), false)
	require.ErrorIs(t, mount.Replay(t.Context(), d.Path(), "ext4", mount.Options{}), unix.EINVAL)
	require.ErrorIs(t, mount.Replay(t.Context(), d.Path(), "ext4", options(t, "foo")), backends.ErrInvalid)
}

// An XFS that has shut down answers EIO, also for its root.
func TestStatOfAFileSystemThatHasShutDown(t *testing.T) {
	t.Parallel()
	need(t, kernel.Loop, kernel.XFS)
	dir := workDir(t)
	target := dirIn(t, dir, "target")
	d := attach(t, image(t, dir, 300<<20, "mkfs.xfs", "-q"), false)
	require.NoError(t, mount.Mount(t.Context(), d.Path(), target, "xfs", mount.Options{}))
	root, err := os.Open(target)
	require.NoError(t, err)
	const goingDown, withoutLog = 0x8004587d, 2 // _IOR('X', 125, __u32)
	require.NoError(t, unix.IoctlSetPointerInt(int(root.Fd()), goingDown, withoutLog))
	require.NoError(t, root.Close())

	info, err := mount.Stat(target)
	require.NoError(t, err)
	require.Equal(t, mount.Info{IsRoot: true, Dead: true}, info)
	require.NoError(t, mount.Unmount(target))
	info, err = mount.Stat(target)
	require.NoError(t, err)
	require.False(t, info.IsRoot)
}

// needsRecovery reads out of an ext4 image whether its journal is to be
// replayed: EXT4_FEATURE_INCOMPAT_RECOVER in the superblock.
func needsRecovery(tb testing.TB, path string) bool {
	tb.Helper()
	file, err := os.Open(path)
	require.NoError(tb, err)
	defer file.Close()
	incompatible := make([]byte, 4)
	_, err = file.ReadAt(incompatible, 1024+0x60)
	require.NoError(tb, err)
	return binary.LittleEndian.Uint32(incompatible)&4 != 0
}

func copyFile(tb testing.TB, from, to string) string {
	tb.Helper()
	source, err := os.Open(from)
	require.NoError(tb, err)
	defer source.Close()
	copied, err := os.Create(to)
	require.NoError(tb, err)
	defer copied.Close()
	_, err = io.Copy(copied, source)
	require.NoError(tb, err)
	return to
}
