//go:build linux

package mount

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// Kernels before 6.8 have no statmount, so what stands in for it must say the
// same.
func TestPropagationFromMountInfo(t *testing.T) {
	t.Parallel()
	for _, f := range []kernel.Feature{kernel.Root, kernel.Tmpfs, kernel.FSMount, kernel.OpenAt2, kernel.StatxMountID} {
		if err := kernel.Probe(t.Context(), f); err != nil {
			t.Skip(err)
		}
	}
	target := t.TempDir()
	require.NoError(t, Mount(t.Context(), "test", target, "tmpfs", Options{}))
	defer func() { require.NoError(t, Unmount(target)) }()
	l, err := openPlace(target)
	require.NoError(t, err)
	defer l.close()

	for kind, want := range map[uintptr]bool{unix.MS_SHARED: true, unix.MS_PRIVATE: false} {
		require.NoError(t, unix.Mount("", target, "", kind, ""))
		got, err := l.isSharedInMountInfo()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
