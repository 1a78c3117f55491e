//go:build linux

package loop_test

import (
	"maps"
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

// TestContract runs the suite of all backends over a store on the disk, as a
// backend that syncs. Package backendtest runs it over stores on tmpfs and xfs,
// and with all types of file systems.
func TestContract(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, contract(t, func(b *loop.Backend) backends.Backend { return b }))
}

// TestContractOfBreakableVolumes runs it over volumes that are all breakable.
func TestContractOfBreakableVolumes(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.FUSE)
	backendtest.Run(t, contract(t, func(b *loop.Backend) backends.Backend { return allBreakable{b} }))
}

// allBreakable is a backend whose every volume is breakable.
type allBreakable struct{ *loop.Backend }

func (b allBreakable) Plan(r backends.Request) (backends.Layout, error) {
	parameters := map[string]string{"breakable": "true"}
	maps.Copy(parameters, r.Parameters)
	r.Parameters = parameters
	return b.Backend.Plan(r)
}

func contract(t *testing.T, as func(*loop.Backend) backends.Backend) backendtest.Harness {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole contract takes minutes on an emulated processor")
	}
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Ext4)
	lacking := func(l backendtest.Lack, f kernel.Feature) map[backendtest.Lack]string {
		if err := kernel.Probe(t.Context(), f); err != nil {
			return map[backendtest.Lack]string{l: err.Error()}
		}
		return nil
	}
	return backendtest.Harness{
		Open: func(tb testing.TB, store string) backends.Backend {
			b, err := loop.New(loop.Options{Dir: store, Sync: true})
			require.NoError(tb, err)
			return as(b)
		},
		Filesystems: []backendtest.Filesystem{
			{Type: "ext4", Bytes: 16 * mebibyte, Lacks: lacking(backendtest.Growth, kernel.SysResource)},
		},
		BlockBytes: 8 * mebibyte,
		Lacks: map[backendtest.Lack]string{
			backendtest.Ephemeral: "a loop volume has its bytes in the array, an ephemeral one belongs to a node",
		},
		Lose: func(tb testing.TB, v backends.Volume) { require.NoError(tb, os.Remove(image(v))) },
		Unfinished: func(tb testing.TB, dir string) {
			require.NoError(tb, os.WriteFile(filepath.Join(dir, "image.tmp"), []byte("half"), 0o600))
		},
	}
}
