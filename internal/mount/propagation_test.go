//go:build linux

package mount_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestPropagates(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	target := tmpfsOn(t, dirIn(t, dir, "target"))
	for _, c := range []struct {
		name string
		kind uintptr
		want bool
	}{
		{"private", unix.MS_PRIVATE, false},
		{"shared", unix.MS_SHARED, true},
		{"slave of nobody", unix.MS_SLAVE, false},
		{"shared again", unix.MS_SHARED, true},
		{"unbindable", unix.MS_UNBINDABLE, false},
	} {
		require.NoError(t, unix.Mount("", target, "", c.kind, ""), c.name)
		for _, path := range []string{target, dirIn(t, target, "inside")} {
			got, err := mount.Propagates(path)
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, got, c.name)
		}
		require.Equal(t, c.want, entryOf(t, target).Shared(), c.name)
	}
	_, err := mount.Propagates(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, backends.ErrNotFound)
}

// A bind of a shared mount is a peer of it: what is mounted on one is seen on
// the other, and goes from both.
func TestMountsOnASharedMountAreSeenByItsPeers(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	source, peer := tmpfsOn(t, dirIn(t, dir, "source")), dirIn(t, dir, "peer")
	require.NoError(t, unix.Mount("", source, "", unix.MS_SHARED, ""))
	require.NoError(t, mount.Bind(t.Context(), source, peer, mount.Options{}))
	inner := dirIn(t, source, "inner")
	require.NoError(t, mount.Mount(t.Context(), "test", inner, "tmpfs", mount.Options{}))

	seen, err := mount.Stat(filepath.Join(peer, "inner"))
	require.NoError(t, err)
	require.True(t, seen.IsRoot)
	require.NoError(t, mount.Unmount(inner))
	seen, err = mount.Stat(filepath.Join(peer, "inner"))
	require.NoError(t, err)
	require.False(t, seen.IsRoot)
	require.NoError(t, mount.Unmount(peer))
}
