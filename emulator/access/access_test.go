package access_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
)

func TestModes(t *testing.T) {
	t.Parallel()
	type meaning struct{ multiNode, readerOnly, multiTarget, needsCapability, singleWriter bool }
	for mode, want := range map[access.Mode]meaning{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        {},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   {readerOnly: true},
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    {multiNode: true, readerOnly: true, multiTarget: true},
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  {multiNode: true, multiTarget: true, singleWriter: true},
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   {multiNode: true, multiTarget: true},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: {needsCapability: true},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  {multiTarget: true, needsCapability: true},
	} {
		got := meaning{
			access.MultiNode(mode), access.ReaderOnly(mode), access.MultiTarget(mode), access.SingleNodeMultiWriter(mode), access.SingleWriter(mode),
		}
		require.Equal(t, want, got, mode)
	}
}

func TestCapabilityFromCSI(t *testing.T) {
	t.Parallel()
	mode := &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	mounted := access.FromCSI(&csi.VolumeCapability{AccessMode: mode, AccessType: &csi.VolumeCapability_Mount{
		Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime"}, VolumeMountGroup: "7"},
	}})
	require.Equal(t, access.Capability{FSType: "xfs", MountFlags: []string{"noatime"}, Group: "7", Mode: mode.GetMode()}, mounted)
	require.NotContains(t, mounted.String(), "noatime", "mount flags may be sensitive")
	block := access.FromCSI(&csi.VolumeCapability{AccessMode: mode, AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}})
	require.Equal(t, access.Capability{Block: true, Mode: mode.GetMode()}, block)
	require.False(t, mounted.Same(block))
	other := mounted
	other.MountFlags = []string{"relatime"}
	require.False(t, mounted.Same(other))
	require.True(t, mounted.Same(mounted))
}

func TestTypesAllow(t *testing.T) {
	t.Parallel()
	block, ext4, xfs, any := access.Capability{Block: true}, access.Capability{FSType: "ext4"}, access.Capability{FSType: "xfs"}, access.Capability{}
	for name, c := range map[string]struct {
		made    []access.Capability
		used    access.Capability
		allowed bool
	}{
		"block as block":           {[]access.Capability{block}, block, true},
		"block as file system":     {[]access.Capability{block}, any, false},
		"file system as block":     {[]access.Capability{any}, block, false},
		"both as block":            {[]access.Capability{any, block}, block, true},
		"the same file system":     {[]access.Capability{ext4}, ext4, true},
		"another file system":      {[]access.Capability{ext4}, xfs, false},
		"the default of a type":    {[]access.Capability{ext4}, any, true},
		"a type where none was":    {[]access.Capability{any}, xfs, true},
		"one of several is enough": {[]access.Capability{ext4, xfs}, xfs, true},
	} {
		err := access.TypesOf(c.made).Allow(c.used)
		if c.allowed {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, backends.ErrInvalid, name)
		}
	}
}
