package model_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func loopSetup(strict bool) setup {
	return setup{
		name: "loop", clients: 6, calls: 50, strict: strict, devices: true,
		modes: []csi.VolumeCapability_AccessMode_Mode{writer, shared},
		open: func(t *testing.T) (backends.Backend, string) {
			testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
			dir := testenv.TmpfsDir(t)
			b, err := loop.New(loop.Options{Dir: dir, Autoclear: true})
			require.NoError(t, err)
			return b, dir
		},
	}
}

func TestManyCallersOfLoop(t *testing.T) {
	t.Parallel()
	compare(t, loopSetup(false), 3)
}

func TestManyCallersOfLoopWithStrictLocks(t *testing.T) {
	t.Parallel()
	compare(t, loopSetup(true), 3)
}
