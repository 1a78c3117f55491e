package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// csiemu is the program of this work tree, built for as long as tests use it.
var csiemu struct {
	sync.Mutex
	users int
	dir   string
}

// buildCSIEmu is the path of csiemu, until the test ends.
func buildCSIEmu(t *testing.T) string {
	t.Helper()
	csiemu.Lock()
	defer csiemu.Unlock()
	if csiemu.users == 0 {
		dir, err := os.MkdirTemp("", "csiemu-") //nolint:usetesting // it outlives the test that needs it first
		require.NoError(t, err)
		csiemu.dir = dir
		build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./cmd/csiemu")
		build.Dir = ".."
		out, err := build.CombinedOutput()
		if err != nil {
			require.NoError(t, os.RemoveAll(dir))
		}
		require.NoError(t, err, "build csiemu: %s", out)
	}
	csiemu.users++
	t.Cleanup(func() {
		csiemu.Lock()
		defer csiemu.Unlock()
		if csiemu.users--; csiemu.users == 0 {
			require.NoError(t, os.RemoveAll(csiemu.dir))
		}
	})
	return filepath.Join(csiemu.dir, "csiemu")
}
