package demo

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
)

// shape is a kind of volume that the demo walks through its life.
type shape struct {
	backend string
	// fsType is the file system; empty for a block volume and where the
	// backend has one of its own.
	fsType string
	block  bool
	// bytes is the size at first; a restore and an expansion make more of it.
	bytes int64
	// data is how many bytes are written, and compared at every step.
	data int64
	// cut is how writers are held while a snapshot or a clone is cut.
	cut cut
	// forgets is true for a backend without bytes: what is written is there
	// until the volume is unpublished, and copies are empty.
	forgets bool
}

// cut is how the bytes of a volume come to one point in time.
type cut int

const (
	// frozen: the emulator holds the file system, the writer notices nothing.
	frozen cut = iota
	// quiesced: the writer pauses, as there is no file system to hold.
	quiesced
	// unpublished: nobody may write, as the file system cannot be held.
	unpublished
)

func (s shape) String() string {
	switch {
	case s.block:
		return "raw block on " + s.backend
	case s.fsType == "":
		return "file system on " + s.backend
	case s.fsType == s.backend:
		return s.fsType
	}
	return s.fsType + " on " + s.backend
}

const mib = 1 << 20

// shapes returns what the demo shows of a backend.
func shapes(backend string) []shape {
	switch backend {
	case "loop":
		return []shape{
			{backend: backend, fsType: "ext4", bytes: 512 * mib},
			{backend: backend, fsType: "xfs", bytes: 512 * mib},
			{backend: backend, fsType: "btrfs", bytes: 512 * mib},
			{backend: backend, block: true, bytes: 512 * mib, cut: quiesced},
		}
	case "tmpfs":
		return []shape{
			{backend: backend, fsType: "tmpfs", bytes: 64 * mib, cut: unpublished},
			{backend: backend, block: true, bytes: 64 * mib, cut: quiesced},
		}
	}
	return []shape{
		{backend: backend, bytes: 64 * mib, cut: quiesced, forgets: true},
		{backend: backend, block: true, bytes: 64 * mib, cut: quiesced, forgets: true},
	}
}

// capability is what the walk asks of a volume.
func (s shape) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if s.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: s.fsType}}
	return c
}
