package emulator_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// backendCases are all backends of this system.
func backendCases() []backendCase {
	return []backendCase{
		{
			name: "loop", data: true, size: 320 * mib,
			capabilities: []*csi.VolumeCapability{mountCapability("ext4"), mountCapability("xfs"), mountCapability("btrfs"), blockCapability()},
			open: func(t *testing.T, dir string) backends.Backend {
				testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.XFS, kernel.Btrfs)
				b, err := loop.New(loop.Options{Dir: dir})
				require.NoError(t, err)
				return b
			},
		},
		{
			name: "tmpfs", data: true, size: 16 * mib,
			capabilities: []*csi.VolumeCapability{mountCapability(""), blockCapability()},
			open: func(t *testing.T, dir string) backends.Backend {
				testenv.Need(t, kernel.Root, kernel.Loop, kernel.Tmpfs)
				b, err := tmpfs.New(tmpfs.Options{Dir: dir})
				require.NoError(t, err)
				return b
			},
		},
		memoryCase(),
	}
}
