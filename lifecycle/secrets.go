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
	for _, m := range openMaps(e.Request) {
		for key := range m.entries {
			if redact.Sensitive(key) && key != c.o.TokensKey {
				found = append(found, Finding{
					Rule: SecretMisplaced, Call: e, What: fmt.Sprintf("key %q of %s looks like a secret", key, m.field),
				})
			}
		}
	}
	return found
}

// openMap is a field of a request that is no place for secrets.
type openMap struct {
	field   string
	entries map[string]string
}

// openMaps goes by the types of requests: to ask a request for a method that most
// have not is slow.
func openMaps(request any) []openMap {
	const parameters, mutable, volumeContext = "parameters", "mutable_parameters", "volume_context"
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		return []openMap{{parameters, r.GetParameters()}, {mutable, r.GetMutableParameters()}}
	case *csi.ControllerModifyVolumeRequest:
		return []openMap{{mutable, r.GetMutableParameters()}}
	case *csi.CreateSnapshotRequest:
		return []openMap{{parameters, r.GetParameters()}}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return []openMap{{parameters, r.GetParameters()}}
	case *csi.GetCapacityRequest:
		return []openMap{{parameters, r.GetParameters()}}
	case *csi.ValidateVolumeCapabilitiesRequest:
		return []openMap{{parameters, r.GetParameters()}, {mutable, r.GetMutableParameters()}, {volumeContext, r.GetVolumeContext()}}
	case *csi.ControllerPublishVolumeRequest:
		return []openMap{{volumeContext, r.GetVolumeContext()}}
	case *csi.NodeStageVolumeRequest:
		return []openMap{{volumeContext, r.GetVolumeContext()}}
	case *csi.NodePublishVolumeRequest:
		return []openMap{{volumeContext, r.GetVolumeContext()}}
	default:
		return nil
	}
}
