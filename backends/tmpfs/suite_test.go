//go:build linux

package tmpfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/backendtest"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// TestContract runs the suite of all backends over a store on the disk. Package
// backendtest runs it over one on tmpfs.
func TestContract(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: the whole contract takes minutes on an emulated processor")
	}
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Tmpfs)
	const noDevice = "a file system volume is bound from where it is mounted: there is no device to take away"
	backendtest.Run(t, backendtest.Harness{
		Open: func(tb testing.TB, store string) backends.Backend {
			b, err := tmpfs.New(tmpfs.Options{Dir: store})
			require.NoError(tb, err)
			return b
		},
		Filesystems: []backendtest.Filesystem{{Type: "tmpfs", Bytes: 16 * mebibyte, Lacks: map[backendtest.Lack]string{
			backendtest.Live:          "tmpfs cannot be frozen",
			backendtest.Stale:         noDevice,
			backendtest.OneAttachment: noDevice,
		}}},
		BlockBytes: 8 * mebibyte,
		Lacks: map[backendtest.Lack]string{
			backendtest.Types: "there is one type only",
		},
		Lose: func(tb testing.TB, v backends.Volume) {
			dir := filepath.Join(v.Dir, "data")
			if v.Block {
				dir = filepath.Join(v.Dir, "block")
			}
			require.NoError(tb, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW))
		},
		Unfinished: func(tb testing.TB, dir string) {
			at := filepath.Join(dir, "data.tmp")
			require.NoError(tb, os.Mkdir(at, 0o700))
			require.NoError(tb, unix.Mount("csiemu:unfinished", at, "tmpfs", 0, "size=1M"))
		},
	})
}
