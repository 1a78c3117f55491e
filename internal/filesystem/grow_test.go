//go:build linux

package filesystem_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestGrowOffline(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root)
	maker := shared()
	for _, c := range []struct{ from, to int64 }{
		{2 * mebibyte, 20 * mebibyte},
		{16 * mebibyte, 64 * mebibyte},
		{64 * mebibyte, 64*mebibyte + 4096},
		{64 * mebibyte, gibibyte + 300*kibibyte},
		{gibibyte, 10 * gibibyte},
	} {
		t.Run(fmt.Sprintf("from %d to %d KiB", c.from/kibibyte, c.to/kibibyte), func(t *testing.T) {
			t.Parallel()
			image := newFilesystem(t, maker, filesystem.Ext4, c.from)
			device := attach(t, image, loopdev.Config{})
			id := probe(t, device.Path()).UUID
			m := mount(t, device.Path(), filesystem.Ext4)
			kept := filepath.Join(m.dir, "kept")
			require.NoError(t, os.WriteFile(kept, []byte("through growth"), 0o600))
			require.ErrorIs(t, filesystem.GrowOffline(t.Context(), device.Path(), filesystem.Ext4), filesystem.ErrInUse)
			m.unmount(t)
			require.NoError(t, os.Truncate(image, c.to))
			require.NoError(t, device.Refresh())

			for range 2 { // the second time there is nothing to do
				require.NoError(t, filesystem.GrowOffline(t.Context(), device.Path(), filesystem.Ext4))
				content := probe(t, device.Path())
				require.True(t, content.Fills(c.to), "%+v", content)
				require.True(t, content.Clean)
				require.Equal(t, id, content.UUID)
			}
			require.NoError(t, check(t, device.Path(), filesystem.Ext4))
			m = mount(t, device.Path(), filesystem.Ext4)
			data, err := os.ReadFile(filepath.Join(m.dir, "kept"))
			require.NoError(t, err)
			require.Equal(t, "through growth", string(data))
		})
	}
}

func TestGrowOfflineIsForExt4Only(t *testing.T) {
	t.Parallel()
	for _, fs := range []filesystem.Type{filesystem.XFS, filesystem.Btrfs} {
		require.ErrorIs(t, filesystem.GrowOffline(t.Context(), "/dev/null", fs), filesystem.ErrNeedsMount)
	}
	err := filesystem.GrowOffline(t.Context(), newImage(t, 16*mebibyte), filesystem.Ext4)
	require.ErrorIs(t, err, backends.ErrPrecondition, "there is nothing to grow")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, filesystem.GrowOffline(ctx, newImage(t, 16*mebibyte), filesystem.Ext4), context.Canceled)
}

func TestGrowMounted(t *testing.T) {
	t.Parallel()
	maker := shared()
	for _, c := range []struct {
		fs       filesystem.Type
		from, to int64
	}{
		// Those with the smallest journals.
		{filesystem.Ext4, 2 * mebibyte, 64 * mebibyte},
		{filesystem.Ext4, 16 * mebibyte, 64 * mebibyte},
		{filesystem.Ext4, 16 * mebibyte, gibibyte},
		{filesystem.Ext4, 31 * mebibyte, gibibyte},
		{filesystem.Ext4, 32 * mebibyte, gibibyte},
		{filesystem.Ext4, 511 * mebibyte, 2*gibibyte + 4096},
		{filesystem.Ext4, gibibyte, 10 * gibibyte},
		{filesystem.XFS, 300 * mebibyte, gibibyte},
		{filesystem.XFS, 300 * mebibyte, 300*mebibyte + 4096},
		{filesystem.XFS, gibibyte, 10*gibibyte + 8192},
		{filesystem.Btrfs, 256 * mebibyte, 256*mebibyte + 4096},
		{filesystem.Btrfs, 256 * mebibyte, gibibyte},
		{filesystem.Btrfs, gibibyte, 10*gibibyte + 4096},
	} {
		t.Run(fmt.Sprintf("%s from %d to %d KiB", c.fs, c.from/kibibyte, c.to/kibibyte), func(t *testing.T) {
			t.Parallel()
			if c.fs == filesystem.Ext4 {
				testenv.Need(t, kernel.SysResource)
			}
			image := newFilesystem(t, maker, c.fs, c.from)
			device := attach(t, image, loopdev.Config{})
			m := mount(t, device.Path(), c.fs)
			require.NoError(t, os.Truncate(image, c.to))
			require.NoError(t, device.Refresh())
			before := m.size(t, c.fs)
			require.True(t, before.Fills(c.from))

			for range 2 {
				require.NoError(t, filesystem.GrowMounted(t.Context(), m.dir, c.fs, c.to))
				require.True(t, m.size(t, c.fs).Fills(c.to))
			}
			m.fill(t)
			after := m.size(t, c.fs)
			m.unmount(t)
			require.NoError(t, check(t, device.Path(), c.fs))
			require.Equal(t, after.SizeBytes, probe(t, device.Path()).SizeBytes)
		})
	}
}

// size is what the kernel says of the mounted file system.
func (m *mounted) size(t *testing.T, fs filesystem.Type) filesystem.Content {
	t.Helper()
	content, err := filesystem.ProbeMounted(t.Context(), m.dir, fs)
	require.NoError(t, err)
	return content
}

// Without the privilege the caller learns which one it is, unless there is
// nothing to grow.
func TestGrowMountedExt4WithoutPrivilege(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root)
	if kernel.Probe(t.Context(), kernel.SysResource) == nil {
		t.Skip("this machine has CAP_SYS_RESOURCE")
	}
	for _, size := range []int64{16 * mebibyte, 200*mebibyte + 4096, gibibyte, 10*gibibyte + 64*kibibyte} {
		image := newFilesystem(t, shared(), filesystem.Ext4, size)
		device := attach(t, image, loopdev.Config{})
		m := mount(t, device.Path(), filesystem.Ext4)
		require.NoError(t, filesystem.GrowMounted(t.Context(), m.dir, filesystem.Ext4, size))
		require.Equal(t, probe(t, device.Path()).SizeBytes, m.size(t, filesystem.Ext4).SizeBytes)

		err := filesystem.GrowMounted(t.Context(), m.dir, filesystem.Ext4, 2*size)
		require.ErrorIs(t, err, kernel.ErrNotSupported)
		var missing *kernel.NotSupportedError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, kernel.SysResource, missing.Feature)
	}
}

func TestGrowMountedRefusesAnotherType(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for fs := range types {
		err := filesystem.GrowMounted(t.Context(), dir+"/missing", fs, gibibyte)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	testenv.Need(t, kernel.Root)
	device := attach(t, newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte), loopdev.Config{})
	m := mount(t, device.Path(), filesystem.Ext4)
	err := filesystem.GrowMounted(t.Context(), m.dir, filesystem.XFS, gibibyte)
	require.ErrorIs(t, err, backends.ErrPrecondition)
}
