package driver

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Identity is who a driver is and which services it has.
type Identity struct {
	// Name is valid: at most 63 characters, alphanumeric at both ends, with
	// dashes, dots and alphanumerics between (CSI, GetPluginInfo).
	Name string
	// VendorVersion is opaque.
	VendorVersion string
	// Services and Expansion are the plugin capabilities.
	Services  Capabilities[csi.PluginCapability_Service_Type]
	Expansion Capabilities[csi.PluginCapability_VolumeExpansion_Type]
}

// Has reports whether the driver has all of these services.
func (i Identity) Has(services ...csi.PluginCapability_Service_Type) bool {
	return i.Services.Has(services...)
}

const longestName = 63

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// CheckName says what is wrong with a driver's name by the rules of GetPluginInfo.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the driver's name is empty")
	case len(name) > longestName:
		return fmt.Errorf("the driver's name %q has %d characters, %d are allowed", name, len(name), longestName)
	case !nameForm.MatchString(name):
		return fmt.Errorf("the driver's name %q must begin and end alphanumeric, with dashes, dots and alphanumerics between", name)
	}
	return nil
}

// Identity asks the driver who it is. The name is the label of the metric from then
// on.
func (d *Driver) Identity(ctx context.Context) (Identity, error) {
	client := csi.NewIdentityClient(d.conn)
	info, err := client.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return Identity{}, fmt.Errorf("ask the CSI driver for its name: %w", err)
	}
	if err := CheckName(info.GetName()); err != nil {
		return Identity{}, fmt.Errorf("ask the CSI driver for its name: %w", err)
	}
	name := info.GetName()
	d.name.Store(&name)
	reply, err := client.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return Identity{}, fmt.Errorf("ask CSI driver %s for its services: %w", name, err)
	}
	identity := Identity{
		Name: name, VendorVersion: info.GetVendorVersion(),
		Services:  Capabilities[csi.PluginCapability_Service_Type]{},
		Expansion: Capabilities[csi.PluginCapability_VolumeExpansion_Type]{},
	}
	for _, c := range reply.GetCapabilities() {
		identity.Services.add(c.GetService().GetType())
		identity.Expansion.add(c.GetVolumeExpansion().GetType())
	}
	return identity, nil
}
