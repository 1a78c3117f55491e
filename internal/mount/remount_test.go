//go:build linux

package mount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestRemount(t *testing.T) {
	t.Parallel()
	const mebibyte = 1 << 20
	tests := map[string]struct {
		flags []string
		total int64 // afterwards
		err   error
	}{
		"a larger size":               {flags: []string{"size=8m"}, total: 8 * mebibyte},
		"less than it holds":          {flags: []string{"size=1m"}, total: 4 * mebibyte, err: backends.ErrInvalid},
		"a parameter that is unknown": {flags: []string{"no-such-parameter=1"}, total: 4 * mebibyte, err: backends.ErrInvalid},
		"a parameter that is fixed":   {flags: []string{"mode=0700", "size=8m"}, total: 8 * mebibyte},
		"an attribute of one mount":   {flags: []string{"size=8m,noexec"}, total: 4 * mebibyte, err: backends.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Root, kernel.Tmpfs, kernel.FSMount)
			dir := t.TempDir()
			o, err := mount.ParseOptions([]string{"size=4m,noexec"})
			require.NoError(t, err)
			require.NoError(t, mount.Mount(t.Context(), "remounted", dir, "tmpfs", o))
			t.Cleanup(func() { require.NoError(t, mount.Unmount(dir)) })
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, 2*mebibyte), 0o600))

			o, err = mount.ParseOptions(test.flags)
			require.NoError(t, err)
			require.ErrorIs(t, mount.Remount(t.Context(), dir, o), test.err)
			usage, err := mount.StatFS(dir)
			require.NoError(t, err)
			require.Equal(t, test.total, usage.Total)
			all, err := mount.ListUnder(dir)
			require.NoError(t, err)
			require.Equal(t, "rw,noexec,relatime", all[0].Options, "attributes of the mount")
		})
	}
}

func TestRemountWhereNothingIsMounted(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.FSMount)
	dir := t.TempDir()
	require.ErrorIs(t, mount.Remount(t.Context(), dir, mount.Options{}), backends.ErrPrecondition)
	require.ErrorIs(t, mount.Remount(t.Context(), filepath.Join(dir, "missing"), mount.Options{}), backends.ErrNotFound)
}
