package lifecycle

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/journal/redact"
)

// checkSecrets finds keys that speak of secrets in maps that are logged, listed
// and stored by everybody. The journal has no values to compare any more.
func (c *Checker) checkSecrets(e *journal.Entry) []Finding {
	var found []Finding
	check := func(field string, m map[string]string) {
		for key := range m {
			if redact.Sensitive(key) && key != c.o.TokensKey {
				found = append(found, Finding{
					Rule: SecretMisplaced, Call: e, What: fmt.Sprintf("key %q of %s looks like a secret", key, field),
				})
			}
		}
	}
	// By their types: to ask for a method that most have not is slow.
	switch r := e.Request.(type) {
	case *csi.CreateVolumeRequest:
		check("parameters", r.GetParameters())
		check("mutable_parameters", r.GetMutableParameters())
	case *csi.ControllerModifyVolumeRequest:
		check("mutable_parameters", r.GetMutableParameters())
	case *csi.CreateSnapshotRequest:
		check("parameters", r.GetParameters())
	case *csi.CreateVolumeGroupSnapshotRequest:
		check("parameters", r.GetParameters())
	case *csi.GetCapacityRequest:
		check("parameters", r.GetParameters())
	case *csi.ValidateVolumeCapabilitiesRequest:
		check("parameters", r.GetParameters())
		check("mutable_parameters", r.GetMutableParameters())
		check("volume_context", r.GetVolumeContext())
	case *csi.ControllerPublishVolumeRequest:
		check("volume_context", r.GetVolumeContext())
	case *csi.NodeStageVolumeRequest:
		check("volume_context", r.GetVolumeContext())
	case *csi.NodePublishVolumeRequest:
		check("volume_context", r.GetVolumeContext())
	}
	return found
}
