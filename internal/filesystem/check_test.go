//go:build linux

package filesystem_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// crashed is the image of an ext4 as a machine leaves it that loses power.
func crashed(t *testing.T) string {
	t.Helper()
	testenv.Need(t, kernel.Root)
	image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
	m := mount(t, attach(t, image, loopdev.Config{}).Path(), filesystem.Ext4)
	m.fill(t)
	data, err := os.ReadFile(image)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "crashed")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// debugfs changes an image behind the back of its file system.
func debugfs(t *testing.T, image, command string) {
	t.Helper()
	require.NoError(t, run(t, "debugfs", "-w", "-R", command, image))
}

func TestCheckRepairsWhatIsSafe(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*testing.T) string{
		"after a crash": crashed,
		"with recorded errors": func(t *testing.T) string {
			image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
			debugfs(t, image, "set_super_value state 3")
			return image
		},
		"with wrong counts": func(t *testing.T) string {
			image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
			debugfs(t, image, "set_super_value free_blocks_count 7")
			debugfs(t, image, "set_super_value state 2")
			return image
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := prepare(t)
			require.False(t, probe(t, image).Clean)
			require.NoError(t, filesystem.Check(t.Context(), image, filesystem.Ext4))
			require.True(t, probe(t, image).Clean)
			require.NoError(t, check(t, image, filesystem.Ext4))
			require.NoError(t, filesystem.Check(t.Context(), image, filesystem.Ext4))
		})
	}
}

func TestCheckDoesNotGuess(t *testing.T) {
	t.Parallel()
	image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
	debugfs(t, image, "clri <2>") // the root directory
	debugfs(t, image, "set_super_value state 2")
	err := filesystem.Check(t.Context(), image, filesystem.Ext4)
	require.ErrorIs(t, err, filesystem.ErrDamaged)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the tool's own words are kept")
}

func TestCheckLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for _, fs := range []filesystem.Type{filesystem.XFS, filesystem.Btrfs} {
		require.NoError(t, filesystem.Check(t.Context(), "/nowhere", fs))
	}
	require.ErrorIs(t, filesystem.Check(t.Context(), newImage(t, mebibyte), filesystem.Ext4), backends.ErrPrecondition)
	require.ErrorIs(t, filesystem.Check(t.Context(), "/nowhere", filesystem.Ext4), os.ErrNotExist)
}

func TestCheckRefusesAReadOnlyDevice(t *testing.T) {
	t.Parallel()
	image := crashed(t)
	before, err := os.ReadFile(image)
	require.NoError(t, err)
	device := attach(t, image, loopdev.Config{ReadOnly: true})
	err = filesystem.Check(t.Context(), device.Path(), filesystem.Ext4)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorIs(t, err, unix.EROFS)
	_, err = shared().Format(t.Context(), device.Path(), filesystem.Ext4, 16*mebibyte, false)
	require.ErrorIs(t, err, unix.EROFS)
	after, err := os.ReadFile(image)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestCheckHonoursItsContext(t *testing.T) {
	t.Parallel()
	image := crashed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, filesystem.Check(ctx, image, filesystem.Ext4), context.Canceled)
	require.NoError(t, filesystem.Check(t.Context(), image, filesystem.Ext4))
}
