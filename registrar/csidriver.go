package registrar

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csiemu/csiemu/internal/role/driver"
)

// ManagedBy is the label of CSIDriver objects that a registrar made, with the value
// ManagedByRegistrar. Without it an object is somebody else's.
const (
	ManagedBy          = "csiemu.dev/managed-by"
	ManagedByRegistrar = "registrar"
)

// CSIDriver keeps the driver's CSIDriver object. The zero value makes one from what the
// driver's capabilities say:
//
//   - attachRequired: PUBLISH_UNPUBLISH_VOLUME of the controller.
//   - storageCapacity: GET_CAPACITY of the controller.
//   - fsGroupPolicy: File with VOLUME_MOUNT_GROUP of the node service, as such a
//     driver applies the group itself and for any filesystem; else
//     ReadWriteOnceWithFSType.
//
// Everything else has the API's defaults. The registrar keeps an object that it made
// as it should be: it makes it again when it was deleted, and undoes changes. An object
// without its label is never touched. attachRequired and volumeLifecycleModes cannot be
// changed: an object of its own with others is deleted and made anew.
//
// Registrars of all nodes keep the same object, so it stays at the end.
type CSIDriver struct {
	// LifecycleModes are the API's volumeLifecycleModes, Persistent and Ephemeral;
	// nil means Persistent.
	LifecycleModes []string
	// PodInfo has the kubelet tell NodePublishVolume of the pod. Modes with
	// Ephemeral have it too, as a driver could not tell them from persistent
	// volumes otherwise.
	PodInfo bool
	// FSGroupPolicy is File, None or ReadWriteOnceWithFSType in place of what is
	// derived; "" derives it.
	FSGroupPolicy string
	// UpdatePeriod is how often the volume limit is asked for again, in whole
	// seconds and at least 10 s; 0 means never.
	UpdatePeriod time.Duration
	// Edit has the last word on the specification; nil leaves it.
	Edit func(*storagev1.CSIDriverSpec)
	// DeleteAtEnd deletes the object at the end, for a registrar that is the only
	// one.
	DeleteAtEnd bool
}

func (c *CSIDriver) check() error {
	for _, mode := range c.LifecycleModes {
		switch storagev1.VolumeLifecycleMode(mode) {
		case storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral:
		default:
			return fmt.Errorf("CSIDriver.LifecycleModes has %q: give Persistent, Ephemeral", mode)
		}
	}
	switch storagev1.FSGroupPolicy(c.FSGroupPolicy) {
	case "", storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
	default:
		return fmt.Errorf("CSIDriver.FSGroupPolicy is %q: give File, None or ReadWriteOnceWithFSType", c.FSGroupPolicy)
	}
	if c.UpdatePeriod != 0 && (c.UpdatePeriod < leastPeriod || c.UpdatePeriod%time.Second != 0) {
		return fmt.Errorf("CSIDriver.UpdatePeriod is %v: give whole seconds, at least %v, or 0", c.UpdatePeriod, leastPeriod)
	}
	return nil
}

// abilities are what of a driver the object is derived from.
type abilities struct {
	controller driver.ControllerCapabilities
	node       driver.NodeCapabilities
}

// ask asks the driver what it can do.
func ask(ctx context.Context, d *driver.Driver, id identity) (can abilities, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if id.Has(csi.PluginCapability_Service_CONTROLLER_SERVICE) {
		if can.controller, err = d.Controller(ctx); err != nil {
			return can, fmt.Errorf("%w: the CSIDriver object needs an endpoint with the controller service", err)
		}
	}
	can.node, err = d.Node(ctx)
	return can, err
}

// spec is what the object should be. All fields are set that a server without
// alpha features sets by itself, so that the two can be compared.
func (c *CSIDriver) spec(can abilities) storagev1.CSIDriverSpec {
	var modes []storagev1.VolumeLifecycleMode
	for _, mode := range c.LifecycleModes {
		modes = append(modes, storagev1.VolumeLifecycleMode(mode))
	}
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	policy := storagev1.FSGroupPolicy(c.FSGroupPolicy)
	if policy == "" {
		policy = storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
		if can.node.Has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
			policy = storagev1.FileFSGroupPolicy
		}
	}
	spec := storagev1.CSIDriverSpec{
		AttachRequired:       ptr.To(can.controller.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)),
		PodInfoOnMount:       ptr.To(c.PodInfo || slices.Contains(modes, storagev1.VolumeLifecycleEphemeral)),
		VolumeLifecycleModes: modes,
		StorageCapacity:      ptr.To(can.controller.Has(csi.ControllerServiceCapability_RPC_GET_CAPACITY)),
		FSGroupPolicy:        &policy,
		RequiresRepublish:    ptr.To(false),
		SELinuxMount:         ptr.To(false),
	}
	if c.UpdatePeriod > 0 {
		spec.NodeAllocatableUpdatePeriodSeconds = ptr.To(int64(c.UpdatePeriod / time.Second))
	}
	if c.Edit != nil {
		c.Edit(&spec)
	}
	return spec
}
