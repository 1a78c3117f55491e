package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Capabilities are what a service of a driver can do. The zero value can nothing.
type Capabilities[T ~int32] map[T]bool

// ControllerCapabilities are those of the controller service. The names of the
// members are those of the specification.
type ControllerCapabilities = Capabilities[csi.ControllerServiceCapability_RPC_Type]

// NodeCapabilities are those of the node service.
type NodeCapabilities = Capabilities[csi.NodeServiceCapability_RPC_Type]

// GroupCapabilities are those of the group controller service.
type GroupCapabilities = Capabilities[csi.GroupControllerServiceCapability_RPC_Type]

// Has reports whether all of them are there.
func (c Capabilities[T]) Has(all ...T) bool {
	for _, one := range all {
		if !c[one] {
			return false
		}
	}
	return true
}

// add adds a capability; 0 is UNKNOWN in every list.
func (c Capabilities[T]) add(one T) {
	if one != 0 {
		c[one] = true
	}
}

// Controller asks what the controller service can do. A driver without one answers
// UNIMPLEMENTED: ask Identity for CONTROLLER_SERVICE first.
func (d *Driver) Controller(ctx context.Context) (ControllerCapabilities, error) {
	reply, err := csi.NewControllerClient(d.conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask CSI driver %s for the capabilities of its controller: %w", d.label(), err)
	}
	set := ControllerCapabilities{}
	for _, c := range reply.GetCapabilities() {
		set.add(c.GetRpc().GetType())
	}
	return set, nil
}

// Node asks what the node service can do.
func (d *Driver) Node(ctx context.Context) (NodeCapabilities, error) {
	reply, err := csi.NewNodeClient(d.conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask CSI driver %s for the capabilities of its node service: %w", d.label(), err)
	}
	set := NodeCapabilities{}
	for _, c := range reply.GetCapabilities() {
		set.add(c.GetRpc().GetType())
	}
	return set, nil
}

// GroupController asks what the group controller service can do. A driver without
// one answers UNIMPLEMENTED: ask Identity for GROUP_CONTROLLER_SERVICE first.
func (d *Driver) GroupController(ctx context.Context) (GroupCapabilities, error) {
	reply, err := csi.NewGroupControllerClient(d.conn).GroupControllerGetCapabilities(ctx, &csi.GroupControllerGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask CSI driver %s for the capabilities of its group controller: %w", d.label(), err)
	}
	set := GroupCapabilities{}
	for _, c := range reply.GetCapabilities() {
		set.add(c.GetRpc().GetType())
	}
	return set, nil
}
