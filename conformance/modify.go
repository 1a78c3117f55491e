package conformance

import (
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func modifyRows() []row {
	const rpc = "ControllerModifyVolume"
	modify := func(c *check, id string, parameters map[string]string) error {
		_, err := c.controller.ControllerModifyVolume(c.ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: parameters})
		return err
	}
	good := func(c *check) map[string]string {
		c.Helper()
		if len(c.ModifiedParameters) == 0 {
			c.Skipf("no parameters that a volume can be changed to are known of this driver: set ModifiedParameters")
		}
		return c.ModifiedParameters
	}
	bad := func(c *check) map[string]string {
		c.Helper()
		if len(c.RefusedParameters) == 0 {
			c.Skipf("no parameters that this driver refuses are known: set RefusedParameters")
		}
		return c.RefusedParameters
	}
	needs := []need{creates, modifies}
	return []row{
		{rpc: rpc, name: "refuses a request without a volume", clause: missingField, needs: needs, run: func(c *check) {
			c.code(modify(c, "", good(c)), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a request without parameters", clause: "a required map has an element at least: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			c.code(modify(c, c.volume("v").GetVolumeId(), nil), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a volume that does not exist", clause: noVolume, needs: needs, run: func(c *check) {
			c.code(modify(c, c.noID(), good(c)), codes.NotFound)
		}},
		{rpc: rpc, name: "changes a volume, also a second time", clause: "the call is idempotent", needs: needs, run: func(c *check) {
			v := c.volume("v")
			c.code(modify(c, v.GetVolumeId(), good(c)), codes.OK)
			c.code(modify(c, v.GetVolumeId(), good(c)), codes.OK)
		}},
		{rpc: rpc, name: "changes a volume that is published", clause: "a volume may be changed during its life", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			c.code(modify(c, v.GetVolumeId(), good(c)), codes.OK)
		}},
		{rpc: rpc, name: "confirms what a volume was changed to", clause: "mutable parameters can be validated", needs: needs, run: func(c *check) {
			v := c.volume("v")
			c.ok(modify(c, v.GetVolumeId(), good(c)))
			v.request.MutableParameters = maps.Clone(v.request.GetMutableParameters())
			if v.request.MutableParameters == nil {
				v.request.MutableParameters = map[string]string{}
			}
			maps.Copy(v.request.MutableParameters, c.ModifiedParameters)
			if !v.confirmed(v.capability) {
				c.Errorf("want %v confirmed, got %q", v.request.GetMutableParameters(), v.lastMessage())
			}
		}},
		{rpc: rpc, name: "refuses parameters that a volume cannot have", clause: "a key or value is not supported: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			c.code(modify(c, c.volume("v").GetVolumeId(), bad(c)), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "changes nothing if one of several parameters is refused", clause: "INVALID_ARGUMENT: nothing of the call was applied", needs: needs, run: func(c *check) {
			v := c.volume("v")
			mixed := maps.Clone(bad(c))
			for key, value := range good(c) {
				if _, refused := mixed[key]; !refused {
					mixed[key] = value
				}
			}
			c.code(modify(c, v.GetVolumeId(), mixed), codes.InvalidArgument)
			resp, err := c.create(v.request)
			c.ok(err)
			equal(c, "for the first request the volume", v.GetVolumeId(), resp.GetVolume().GetVolumeId())
		}},
	}
}
