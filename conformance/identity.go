package conformance

import (
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const nameLimit = 63

func identityRows() []row {
	const info, capabilities, probe = "GetPluginInfo", "GetPluginCapabilities", "Probe"
	return []row{
		{rpc: info, name: "answers a name in domain form", clause: "the name has at most 63 letters, digits, dashes and dots, and begins and ends with a letter or digit", run: func(c *check) {
			got := c.info(c.identity)
			if n := got.GetName(); len(n) > nameLimit || !domainForm.MatchString(n) {
				c.Errorf("want a name in domain form of at most %d characters, got %q", nameLimit, n)
			}
			for _, label := range strings.Split(got.GetName(), ".") {
				if !labelForm.MatchString(label) {
					c.Errorf("want labels that begin and end with a letter or digit, got %q in %q", label, got.GetName())
				}
			}
		}},
		{rpc: info, name: "answers a vendor version", clause: "vendor_version is required", run: func(c *check) {
			if c.info(c.identity).GetVendorVersion() == "" {
				c.Errorf("want a vendor_version, got none")
			}
		}},
		{rpc: info, name: "answers within the limits", clause: "a string has at most 128 bytes, a map 4 KiB", run: func(c *check) {
			c.limits(c.info(c.identity))
		}},
		{rpc: info, name: "answers the same at the node's endpoint", clause: "controller and node are one plugin", level: Should, run: func(c *check) {
			equal(c, "the name at the node", c.info(c.identity).GetName(), c.info(c.nodeIdentity).GetName())
		}},
		{rpc: capabilities, name: "answers the same capabilities at every endpoint", clause: "all instances of one version return the same set, whatever they serve", run: func(c *check) {
			controller, node := c.plugin(c.identity), c.plugin(c.nodeIdentity)
			if c.info(c.identity).GetVendorVersion() != c.info(c.nodeIdentity).GetVendorVersion() {
				c.Skipf("the endpoints serve different versions")
			}
			sameSet(c, "capabilities", controller, node)
		}},
		{rpc: capabilities, name: "answers the same capabilities again", clause: "all instances of one version return the same set", run: func(c *check) {
			sameSet(c, "capabilities", c.plugin(c.identity), c.plugin(c.identity))
		}},
		{rpc: capabilities, name: "names known capabilities, each once", clause: "a capability has a type, which is not UNKNOWN", run: func(c *check) {
			known(c, c.plugin(c.identity))
		}},
		{rpc: capabilities, name: "advertises CONTROLLER_SERVICE with a controller", clause: "CONTROLLER_SERVICE tells that the RPCs of the Controller service are there", run: func(c *check) {
			c.need(hasController)
			_, err := c.controller.ControllerGetCapabilities(c.ctx, &csi.ControllerGetCapabilitiesRequest{})
			c.code(err, codes.OK)
		}},
		{rpc: capabilities, name: "advertises GROUP_CONTROLLER_SERVICE with a group controller", clause: "GROUP_CONTROLLER_SERVICE tells that the RPCs of the GroupController service are there", run: func(c *check) {
			c.need(hasGroups)
			_, err := c.group.GroupControllerGetCapabilities(c.ctx, &csi.GroupControllerGetCapabilitiesRequest{})
			c.code(err, codes.OK)
		}},
		{rpc: capabilities, name: "advertises SNAPSHOT_METADATA_SERVICE with its streams", clause: "SNAPSHOT_METADATA_SERVICE tells that both of its RPCs are implemented", run: func(c *check) {
			c.need(hasMetadata)
			_, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: c.noID()})
			c.code(err, codes.NotFound)
			_, err = c.delta(&csi.GetMetadataDeltaRequest{BaseSnapshotId: c.noID(), TargetSnapshotId: c.noID()})
			c.code(err, codes.NotFound)
		}},
		{rpc: capabilities, name: "advertises ONLINE with an EXPAND_VOLUME", clause: "ONLINE needs EXPAND_VOLUME of the controller or of the node", run: func(c *check) {
			c.need(expandsOnline)
			if !c.has[expands] && !c.has[nodeExpands] {
				c.Errorf("want EXPAND_VOLUME of the controller or of the node, got neither")
			}
		}},
		{rpc: capabilities, name: "advertises OFFLINE with the controller's EXPAND_VOLUME", clause: "OFFLINE needs EXPAND_VOLUME of the controller", run: func(c *check) {
			c.need(expandsOffline)
			if !c.has[expands] {
				c.Errorf("want EXPAND_VOLUME of the controller, got none")
			}
		}},
		{rpc: probe, name: "answers that it is ready", clause: "a healthy plugin answers OK; ready is true or unset once it serves", run: func(c *check) {
			resp, err := c.identity.Probe(c.ctx, &csi.ProbeRequest{})
			c.ok(err)
			if r := resp.GetReady(); r != nil && !r.GetValue() {
				c.Errorf("want ready, got false: begin when the driver is initialised")
			}
		}},
		{rpc: probe, name: "answers at any time, and at every endpoint", clause: "the orchestrator may probe at any time and more than once", run: func(c *check) {
			for range 3 {
				_, err := c.identity.Probe(c.ctx, &csi.ProbeRequest{})
				c.code(err, codes.OK)
				_, err = c.nodeIdentity.Probe(c.ctx, &csi.ProbeRequest{})
				c.code(err, codes.OK)
			}
		}},
	}
}

func (c *check) info(client csi.IdentityClient) *csi.GetPluginInfoResponse {
	c.Helper()
	resp, err := client.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.ok(err)
	return resp
}

func (c *check) plugin(client csi.IdentityClient) []*csi.PluginCapability {
	c.Helper()
	resp, err := client.GetPluginCapabilities(c.ctx, &csi.GetPluginCapabilitiesRequest{})
	c.ok(err)
	return resp.GetCapabilities()
}

// sameSet fails the row unless two lists have the same elements.
func sameSet[M proto.Message](c *check, what string, one, other []M) {
	c.Helper()
	if lacking(one, other)+lacking(other, one) > 0 {
		c.Errorf("want the same %s twice, got %v and %v", what, one, other)
	}
}

// lacking counts the elements of one that other does not have.
func lacking[M proto.Message](one, other []M) (n int) {
	for _, m := range one {
		found := false
		for _, o := range other {
			found = found || proto.Equal(m, o)
		}
		if !found {
			n++
		}
	}
	return n
}

// served skips the row if a service is not served.
func (c *check) served(err error) {
	c.Helper()
	if status.Code(err) == codes.Unimplemented {
		c.Skipf("the driver does not serve this service")
	}
	c.ok(err)
}
