package backendtest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/backendtest"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

const mebibyte = 1 << 20

// TestLoop runs the suite over a store on tmpfs, which copies images.
func TestLoop(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Ext4, kernel.XFS, kernel.Btrfs)
	backendtest.Run(t, loopHarness(testenv.TmpfsDir, ext4(t), backendtest.Filesystem{Type: "xfs", Bytes: 304 * mebibyte}, btrfs(t)))
}

// TestLoopOnXFS runs the suite over a store that shares the blocks of images.
// What lies in them makes no difference to it, so one file system is enough.
func TestLoopOnXFS(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Ext4, kernel.XFS)
	backendtest.Run(t, loopHarness(testenv.XFSDir, ext4(t)))
}

func ext4(t *testing.T) backendtest.Filesystem {
	return backendtest.Filesystem{Type: "ext4", Bytes: 16 * mebibyte, Lacks: lacking(t, backendtest.Growth, kernel.SysResource)}
}

func btrfs(t *testing.T) backendtest.Filesystem {
	return backendtest.Filesystem{Type: "btrfs", Bytes: 256 * mebibyte, Lacks: lacking(t, backendtest.Twins, kernel.BtrfsTempFSID)}
}

func loopHarness(store func(testing.TB) string, types ...backendtest.Filesystem) backendtest.Harness {
	return backendtest.Harness{
		Open: func(tb testing.TB, store string) backends.Backend {
			b, err := loop.New(loop.Options{Dir: store})
			require.NoError(tb, err)
			return b
		},
		Store:       store,
		Filesystems: types,
		BlockBytes:  8 * mebibyte,
		Lacks: map[backendtest.Lack]string{
			backendtest.Ephemeral: "a loop volume has its bytes in the array, an ephemeral one belongs to a node",
		},
		Lose: func(tb testing.TB, v backends.Volume) {
			require.NoError(tb, os.Remove(filepath.Join(v.Dir, "image")))
		},
		Unfinished: func(tb testing.TB, dir string) {
			require.NoError(tb, os.WriteFile(filepath.Join(dir, "image.tmp"), []byte("half"), 0o600))
		},
	}
}

// lacking is what this machine cannot for want of a feature, with the kernel's
// reason.
func lacking(t *testing.T, l backendtest.Lack, f kernel.Feature) map[backendtest.Lack]string {
	t.Helper()
	err := kernel.Probe(t.Context(), f)
	if err == nil {
		return nil
	}
	require.True(t, errors.Is(err, kernel.ErrNotSupported), "%v", err)
	return map[backendtest.Lack]string{l: err.Error()}
}
