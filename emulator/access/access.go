// Package access says what CSI's volume capabilities and access modes mean:
// which of them allow a second node, a second target or a writer, and when two
// of them are compatible.
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
)

// ReadOnlyKey is "true" in the publish context of a node that may only read:
// the device itself may be writable, for other nodes.
const ReadOnlyKey = "csiemu.dev/readonly"

// VolumeKey is the volume's id in its publish context.
const VolumeKey = "csiemu.dev/volume"

// TypesKey says in the publish context how the volume can be accessed: block,
// mount, or both with a comma. A node that has no record of the volume knows it
// from there.
const TypesKey = "csiemu.dev/access"

// Mode is an access mode of the specification.
type Mode = csi.VolumeCapability_AccessMode_Mode

// Capability is a volume capability in the form in which it is kept in
// records. Two capabilities with equal fields are the same.
type Capability struct {
	// Block asks for raw block access; the file system fields are empty then.
	Block      bool     `json:"block,omitempty"`
	FSType     string   `json:"fsType,omitempty"`
	MountFlags []string `json:"mountFlags,omitempty"`
	// Group is the volume_mount_group.
	Group string `json:"group,omitempty"`
	// Mode is the access mode by its number in the specification.
	Mode Mode `json:"mode"`
}

// FromCSI converts a capability whose required fields were checked.
func FromCSI(c *csi.VolumeCapability) Capability {
	out := Capability{Block: c.GetBlock() != nil, Mode: c.GetAccessMode().GetMode()}
	if m := c.GetMount(); m != nil {
		out.FSType, out.MountFlags, out.Group = m.GetFsType(), m.GetMountFlags(), m.GetVolumeMountGroup()
	}
	return out
}

// AllFromCSI converts several capabilities.
func AllFromCSI(all []*csi.VolumeCapability) []Capability {
	out := make([]Capability, 0, len(all))
	for _, c := range all {
		out = append(out, FromCSI(c))
	}
	return out
}

// Same reports whether two capabilities are identical.
func (c Capability) Same(d Capability) bool {
	return c.Block == d.Block && c.FSType == d.FSType && c.Group == d.Group && c.Mode == d.Mode &&
		slices.Equal(c.MountFlags, d.MountFlags)
}

// String names the access type and mode for messages. Mount flags may be
// sensitive and are left out.
func (c Capability) String() string {
	if c.Block {
		return fmt.Sprintf("block, %s", c.Mode)
	}
	if c.FSType == "" {
		return fmt.Sprintf("mount, %s", c.Mode)
	}
	return fmt.Sprintf("mount %s, %s", c.FSType, c.Mode)
}

// MultiNode reports whether the mode lets several nodes attach a volume.
func MultiNode(m Mode) bool {
	switch m {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	}
	return false
}

// SingleWriter reports whether the mode lets several nodes attach a volume, but
// only one of them write.
func SingleWriter(m Mode) bool {
	return m == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
}

// ReaderOnly reports whether the mode allows no writer at all.
func ReaderOnly(m Mode) bool {
	return m == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		m == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// MultiTarget reports whether the mode lets one node publish a volume at
// several targets: the rows of the specification's table for NodePublishVolume
// that answer OK for another target.
func MultiTarget(m Mode) bool {
	return MultiNode(m) || m == csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
}

// SingleNodeMultiWriter reports whether the mode is one of those that the
// SINGLE_NODE_MULTI_WRITER capability adds.
func SingleNodeMultiWriter(m Mode) bool {
	return m == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER ||
		m == csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
}

// Types sums up the access types of several capabilities.
type Types struct {
	Block, Filesystem bool
	// FSTypes are the named file systems, sorted, without duplicates.
	FSTypes []string
}

// String is the value of TypesKey.
func (t Types) String() string {
	switch {
	case t.Block && t.Filesystem:
		return "block,mount"
	case t.Block:
		return "block"
	}
	return "mount"
}

// CheckTypes returns backends.ErrPrecondition for a capability that asks for a kind
// of access which the volume of a publish context does not have.
func CheckTypes(publishContext map[string]string, c Capability) error {
	have, told := publishContext[TypesKey]
	want := Types{Block: c.Block, Filesystem: !c.Block}.String()
	if !told || slices.Contains(strings.Split(have, ","), want) {
		return nil
	}
	return fmt.Errorf("the volume was created for %s, not for %s: %w", have, want, backends.ErrPrecondition)
}

// TypesOf sums up the access types of all.
func TypesOf(all []Capability) Types {
	var t Types
	for _, c := range all {
		if c.Block {
			t.Block = true
			continue
		}
		t.Filesystem = true
		if c.FSType != "" {
			t.FSTypes = append(t.FSTypes, c.FSType)
		}
	}
	slices.Sort(t.FSTypes)
	t.FSTypes = slices.Compact(t.FSTypes)
	return t
}

// Allow returns nil when a volume that was created with these types can be used
// with capability c, and otherwise says why not, as backends.ErrInvalid.
func (t Types) Allow(c Capability) error {
	switch {
	case c.Block && !t.Block:
		return fmt.Errorf("the volume was created for file system access, not for block access: %w", backends.ErrInvalid)
	case !c.Block && !t.Filesystem:
		return fmt.Errorf("the volume was created for block access, not for file system access: %w", backends.ErrInvalid)
	case c.FSType != "" && len(t.FSTypes) > 0 && !slices.Contains(t.FSTypes, c.FSType):
		return fmt.Errorf("the volume was created for %v, not for %s: %w", t.FSTypes, c.FSType, backends.ErrInvalid)
	}
	return nil
}
