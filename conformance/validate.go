package conformance

import (
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// validate calls ValidateVolumeCapabilities as an orchestrator would for the
// volume.
func (v *volume) validate(capabilities ...*csi.VolumeCapability) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return v.c.controller.ValidateVolumeCapabilities(v.c.ctx, &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), VolumeCapabilities: capabilities,
		Parameters: v.request.GetParameters(), MutableParameters: v.request.GetMutableParameters(),
	})
}

// confirmed reports whether the driver says that it supports all these
// capabilities of the volume.
func (v *volume) confirmed(capabilities ...*csi.VolumeCapability) bool {
	v.c.Helper()
	resp, err := v.validate(capabilities...)
	v.c.ok(err)
	return lacking(capabilities, resp.GetConfirmed().GetVolumeCapabilities()) == 0
}

// lastMessage is why the volume's own capability is not confirmed.
func (v *volume) lastMessage() string {
	resp, err := v.validate(v.capability)
	if err != nil {
		return describe(err)
	}
	return resp.GetMessage()
}

// unsupported is a capability that the driver says the volume does not have; the
// row is skipped if there is none.
func (v *volume) unsupported() *csi.VolumeCapability {
	v.c.Helper()
	candidates := []*csi.VolumeCapability{blockCapability(singleWriter), v.c.mountCapability(singleWriter)}
	for _, candidate := range append(candidates, nowhere(singleWriter)) {
		if !v.confirmed(candidate) {
			return candidate
		}
	}
	v.c.Skipf("the driver confirms every capability: there is none that a volume lacks")
	return nil
}

func validateRows() []row {
	const rpc = "ValidateVolumeCapabilities"
	needs := []need{creates}
	good := func(c *check) *csi.ValidateVolumeCapabilitiesRequest {
		v := c.volume("v")
		return &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), VolumeCapabilities: v.request.GetVolumeCapabilities()}
	}
	call := func(c *check, r *csi.ValidateVolumeCapabilitiesRequest) error {
		_, err := c.controller.ValidateVolumeCapabilities(c.ctx, r)
		return err
	}
	rows := refusals(rpc, needs, good, call,
		spoiled[*csi.ValidateVolumeCapabilitiesRequest]{name: "refuses a request without a volume", clause: missingField, edit: func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeId = "" }},
		spoiled[*csi.ValidateVolumeCapabilitiesRequest]{name: "refuses a request without capabilities", clause: missingField, edit: func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeCapabilities = nil }},
		spoiled[*csi.ValidateVolumeCapabilitiesRequest]{name: "refuses a capability without an access type", clause: missingField, edit: func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeCapabilities[0].AccessType = nil }},
		spoiled[*csi.ValidateVolumeCapabilitiesRequest]{name: "refuses a capability without an access mode", clause: missingField, edit: func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeCapabilities[0].AccessMode = nil }},
		spoiled[*csi.ValidateVolumeCapabilitiesRequest]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r *csi.ValidateVolumeCapabilitiesRequest) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "confirms what a volume was made for", clause: "confirmed names the capabilities that are supported", needs: needs, run: func(c *check) {
			v := c.volume("v")
			resp, err := v.validate(v.capability)
			c.ok(err)
			c.limits(resp)
			sameSet(c, "capabilities", []*csi.VolumeCapability{v.capability}, resp.GetConfirmed().GetVolumeCapabilities())
			if got := resp.GetConfirmed().GetVolumeContext(); len(got) > 0 && !maps.Equal(got, v.GetVolumeContext()) {
				c.Errorf("want the volume context %v, got %v", v.GetVolumeContext(), got)
			}
			if got := resp.GetConfirmed().GetParameters(); len(got) > 0 && !maps.Equal(got, v.request.GetParameters()) {
				c.Errorf("want the parameters %v, got %v", v.request.GetParameters(), got)
			}
			if got := resp.GetConfirmed().GetMutableParameters(); len(got) > 0 && !maps.Equal(got, v.request.GetMutableParameters()) {
				c.Errorf("want the mutable parameters %v, got %v", v.request.GetMutableParameters(), got)
			}
		}},
		row{rpc: rpc, name: "does not confirm a capability that the volume lacks", clause: "not supported: OK, without confirmed", needs: needs, run: func(c *check) {
			v := c.volume("v")
			resp, err := v.validate(nowhere(singleWriter))
			if c.code(err, codes.OK) && resp.GetConfirmed() != nil {
				c.Errorf("want nothing confirmed for file system %q, got %v", unknownFSType, resp.GetConfirmed())
			}
			c.limits(resp)
		}},
		row{rpc: rpc, name: "says why it does not confirm", clause: "message is for the orchestrator if nothing is confirmed", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v")
			resp, err := v.validate(v.unsupported())
			if c.code(err, codes.OK) && resp.GetMessage() == "" {
				c.Errorf("want a message that says why, got none")
			}
		}},
		row{rpc: rpc, name: "confirms nothing if one of several capabilities is not supported", clause: "confirmed only if all capabilities are supported", needs: needs, run: func(c *check) {
			v := c.volume("v")
			resp, err := v.validate(v.capability, v.unsupported())
			if c.code(err, codes.OK) && resp.GetConfirmed() != nil {
				c.Errorf("want nothing confirmed, got %v", resp.GetConfirmed())
			}
		}},
		row{rpc: rpc, name: "answers the same again", clause: "the call is idempotent", needs: needs, run: func(c *check) {
			v := c.volume("v")
			equal(c, "confirmation", v.confirmed(v.capability), v.confirmed(v.capability))
		}},
		row{rpc: rpc, name: "does not confirm mutable parameters that cannot be had", clause: "confirmed only what was validated", needs: append(needs, modifies), run: func(c *check) {
			if len(c.RefusedParameters) == 0 {
				c.Skipf("no parameters that this driver refuses are known: set RefusedParameters")
			}
			v := c.volume("v")
			v.request.MutableParameters = c.RefusedParameters
			resp, err := v.validate(v.capability)
			if c.code(err, codes.OK, codes.InvalidArgument) && len(resp.GetConfirmed().GetMutableParameters()) > 0 {
				c.Errorf("want mutable parameters %v not confirmed, got %v", c.RefusedParameters, resp.GetConfirmed())
			}
		}},
	)
}
