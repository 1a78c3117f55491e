package attacher

import "strings"

// Names that external-attacher writes, and one more.
const (
	// nodeIDAnnotation of a VolumeAttachment has the node's id as the driver knows
	// it, for a detach when the CSINode is gone.
	nodeIDAnnotation = "csi.alpha.kubernetes.io/node-id"
	// handleAnnotation has the volume's handle, for a detach when the
	// PersistentVolume is gone.
	handleAnnotation = "csiemu.dev/volume-handle"
	// migratedAnnotation of a PersistentVolume names the driver that an in-tree
	// volume was migrated to.
	migratedAnnotation = "pv.kubernetes.io/migrated-to"
)

// finalizerOf is the finalizer of a driver's attacher.
func finalizerOf(driver string) string { return "external-attacher/" + sanitized(driver) }

// sanitized makes a name of letters, digits and dashes that does not end with a
// dash.
func sanitized(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	if strings.HasSuffix(name, "-") {
		name += "X"
	}
	return name
}
