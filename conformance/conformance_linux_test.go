package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func newLoop(t *testing.T, dir string) backends.Backend {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4)
	b, err := loop.New(loop.Options{Dir: dir})
	require.NoError(t, err)
	return b
}

func newTmpfs(t *testing.T, dir string) backends.Backend {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Tmpfs)
	b, err := tmpfs.New(tmpfs.Options{Dir: dir})
	require.NoError(t, err)
	return b
}

func TestLoop(t *testing.T) {
	t.Parallel()
	s := serve(t, "loop", newLoop, nil)
	run(t, s, s.target())
}

// TestLoopBlock uses block volumes where a row needs any volume.
func TestLoopBlock(t *testing.T) {
	t.Parallel()
	s := serve(t, "loop", newLoop, nil)
	target := s.target()
	target.Block = true
	run(t, s, target)
}

// TestLoopGrowsOnline has a file system that grows while it is published on
// every machine; its volumes are large, so that only rows about growth run.
func TestLoopGrowsOnline(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Btrfs)
	s := serve(t, "loop", newLoop, nil)
	target := s.target()
	target.FSType, target.VolumeBytes = "btrfs", 256*mib
	run(t, s, target, "NodeExpandVolume", "ControllerExpandVolume")
}

func TestTmpfs(t *testing.T) {
	t.Parallel()
	s := serve(t, "tmpfs", newTmpfs, nil)
	run(t, s, s.target())
}
