//go:build linux

package mount_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestMountOptionsReachTheKernel(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	for name, c := range map[string]struct{ flags, mount, super string }{
		"none":                      {"", "rw,relatime", "rw"},
		"read-only in both":         {"ro", "ro,relatime", "ro"},
		"writable after read-only":  {"ro,rw", "rw,relatime", "rw"},
		"what programs must not do": {"nosuid,nodev,noexec", "rw,nosuid,nodev,noexec,relatime", "rw"},
		"opposites of nothing":      {"suid,dev,exec,diratime,symfollow,atime", "rw,relatime", "rw"},
		"no access times":           {"noatime", "rw,noatime", "rw"},
		"no access times of dirs":   {"nodiratime", "rw,nodiratime,relatime", "rw"},
		"every access time":         {"strictatime", "rw", "rw"},
		"no following of links":     {"nosymfollow", "rw,relatime,nosymfollow", "rw"},
		"flags of the file system":  {"sync,dirsync,mand,lazytime", "rw,relatime", "rw,sync,dirsync,mand,lazytime"},
		"flags of it taken back":    {"sync,async,lazytime,nolazytime", "rw,relatime", "rw"},
		"parameters of it":          {"size=1m,mode=700,nr_inodes=100", "rw,relatime", "rw,size=1024k,nr_inodes=100,mode=700"},
		"the later parameter wins":  {"size=1m,size=2m", "rw,relatime", "rw,size=2048k"},
		"notes for other programs":  {"defaults,_netdev,nofail,x-test", "rw,relatime", "rw"},
		"both kinds, in any order":  {"size=1m,noexec,ro,mode=700", "ro,noexec,relatime", "ro,size=1024k,mode=700"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := dirIn(t, workDir(t), "target")
			tmpfsOn(t, target, c.flags)
			e := entryOf(t, target)
			require.Equal(t, c.mount, e.Options)
			// Kernels tell of defaults, such as inode64, behind what was asked.
			require.Truef(t, strings.HasPrefix(e.SuperOptions+",", c.super+","), "%s, want %s", e.SuperOptions, c.super)
			require.Equal(t, "tmpfs", e.FSType)
			require.Equal(t, "test", e.Source)
		})
	}
}

func TestMountCarriesTheKernelsWords(t *testing.T) {
	t.Parallel()
	need(t, kernel.Ext4, kernel.Tmpfs)
	for name, c := range map[string]struct {
		fsType, source, flags string
		words                 string
		kind                  error
	}{
		"an option that the file system does not have": {"ext4", "/dev/null", "foo", "ext4: Unknown parameter 'foo'", backends.ErrInvalid},
		"with a value":                  {"ext4", "/dev/null", "nouuid,foo=1", "ext4: Unknown parameter 'nouuid'", backends.ErrInvalid},
		"a bad value":                   {"tmpfs", "none", "size=much", "tmpfs: Bad value for 'size'", backends.ErrInvalid},
		"a device that is none":         {"ext4", "/dev/null", "", "block device", nil},
		"a device that is not there":    {"ext4", "/dev/csiemu-none", "", "/dev/csiemu-none: Can't ", backends.ErrNotFound},
		"the option, but not its value": {"ext4", "/dev/null", "foo=secret", `set option "foo": ext4: Unknown parameter 'foo'`, backends.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := dirIn(t, workDir(t), "target")
			err := mount.Mount(t.Context(), c.source, target, c.fsType, options(t, c.flags))
			require.ErrorContains(t, err, c.words)
			require.ErrorContains(t, err, target)
			require.NotContains(t, err.Error(), "secret")
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			requireNothingMounted(t, target)
		})
	}
}

func TestMountWithSELinuxContext(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	const flag = `context="system_u:object_r:tmp_t:s0:c1,c2"`
	err := mount.Mount(t.Context(), "test", target, "tmpfs", options(t, flag))
	if kernel.Probe(t.Context(), kernel.SELinux) != nil {
		require.ErrorIs(t, err, backends.ErrInvalid)
		require.ErrorContains(t, err, "Unknown parameter 'context'")
		return
	}
	require.NoError(t, err)
	require.Contains(t, entryOf(t, target).SuperOptions, flag)
	require.NoError(t, mount.Unmount(target))
}

func TestMountOfAFileSystemThatTheKernelLacks(t *testing.T) {
	t.Parallel()
	need(t)
	target := dirIn(t, workDir(t), "target")
	err := mount.Mount(t.Context(), "none", target, "no-such-fs", mount.Options{})
	require.ErrorIs(t, err, kernel.ErrNotSupported)
	require.ErrorContains(t, err, "no-such-fs")
}

func TestMountStacks(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	target := dirIn(t, workDir(t), "target")
	tmpfsOn(t, target, "mode=700")
	lower, err := mount.Stat(target)
	require.NoError(t, err)
	fileIn(t, target, "lower", "")

	require.NoError(t, mount.Mount(t.Context(), "test", target, "tmpfs", mount.Options{}))
	upper, err := mount.Stat(target)
	require.NoError(t, err)
	require.NotEqual(t, lower.Dev, upper.Dev)
	require.NoFileExists(t, filepath.Join(target, "lower"))

	require.NoError(t, mount.Unmount(target), "takes the topmost only")
	now, err := mount.Stat(target)
	require.NoError(t, err)
	require.Equal(t, lower, now)
	require.FileExists(t, filepath.Join(target, "lower"))
}

func TestMountHonoursItsContext(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	target, source := dirIn(t, dir, "target"), dirIn(t, dir, "source")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, mount.Mount(ctx, "test", target, "tmpfs", mount.Options{}), context.Canceled)
	require.ErrorIs(t, mount.Bind(ctx, source, target, mount.Options{}), context.Canceled)
	require.ErrorIs(t, mount.Replay(ctx, "test", "tmpfs", mount.Options{}), context.Canceled)
	requireNothingMounted(t, dir)
}

// A file system that is served by a process must not be asked for anything
// before that process can answer, which may be after Mount returned.
func TestMountDoesNotWaitForAServer(t *testing.T) {
	t.Parallel()
	need(t, kernel.FUSE)
	target := dirIn(t, workDir(t), "target")
	_, device := mountFUSE(t, target)
	require.NoError(t, mount.Detach(target))
	require.NoError(t, device.Close())
	requireNothingMounted(t, target)
}

func TestMountOfASourceWithALongPath(t *testing.T) {
	t.Parallel()
	need(t, kernel.Ext4)
	dir := workDir(t)
	source := dir
	for range 4 {
		source = filepath.Join(source, strings.Repeat("d", 100))
	}
	require.NoError(t, os.MkdirAll(source, 0o755))
	source = fileIn(t, source, "image", "")
	err := mount.Mount(t.Context(), source, dirIn(t, dir, "target"), "ext4", mount.Options{})
	require.ErrorIs(t, err, unix.ENOTBLK, "the kernel found the file, which is no device")
}
