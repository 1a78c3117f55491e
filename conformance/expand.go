package conformance

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func (v *volume) expandRequest(bytes int64) *csi.ControllerExpandVolumeRequest {
	return &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapability: v.capability}
}

func (c *check) expand(r *csi.ControllerExpandVolumeRequest) error {
	_, err := c.controller.ControllerExpandVolume(c.ctx, r)
	return err
}

// expand grows the volume, or ends the row.
func (v *volume) expand(bytes int64) (resp *csi.ControllerExpandVolumeResponse) {
	v.c.Helper()
	v.c.need(expands)
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) (err error) {
		resp, err = v.c.controller.ControllerExpandVolume(ctx, v.expandRequest(bytes))
		return err
	}))
	return resp
}

func controllerExpandRows() []row {
	const rpc = "ControllerExpandVolume"
	needs := []need{creates, expands}
	type request = *csi.ControllerExpandVolumeRequest
	good := func(c *check) request { return c.volume("v").expandRequest(2 * c.volumeBytes()) }
	size := func(required, limit int64) func(request) {
		return func(r request) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	rows := refusals(rpc, needs, good, (*check).expand,
		spoiled[request]{name: "refuses a request without a volume", clause: missingField, edit: func(r request) { r.VolumeId = "" }},
		spoiled[request]{name: "refuses a request without a capacity range", clause: missingField, edit: func(r request) { r.CapacityRange = nil }},
		spoiled[request]{name: "refuses a capacity range of nothing", clause: "at least one of required_bytes and limit_bytes must be given: INVALID_ARGUMENT", edit: size(0, 0)},
		spoiled[request]{name: "refuses negative required_bytes", clause: negative, edit: size(-1, 0)},
		spoiled[request]{name: "refuses a negative limit_bytes", clause: negative, edit: size(0, -1)},
		spoiled[request]{name: "refuses a limit below the required size", clause: "the capacity range is not allowed: OUT_OF_RANGE (or INVALID_ARGUMENT)", edit: size(hugeBytes, hugeBytes/2), codes: []codes.Code{codes.OutOfRange, codes.InvalidArgument}},
		spoiled[request]{name: "refuses a size that no storage has", clause: "the capacity range is not allowed: OUT_OF_RANGE", edit: size(hugeBytes, 0), codes: []codes.Code{codes.OutOfRange, codes.ResourceExhausted}},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r request) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "grows a volume", clause: "the volume is at least required_bytes; capacity_bytes is required", needs: needs, run: func(c *check) {
			resp := c.volume("v").expand(2 * c.volumeBytes())
			if resp.GetCapacityBytes() < 2*c.volumeBytes() {
				c.Errorf("want at least %d bytes, got %d", 2*c.volumeBytes(), resp.GetCapacityBytes())
			}
		}},
		row{rpc: rpc, name: "answers OK a second time", clause: "already as large as asked for: OK", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v")
			once := v.expand(2 * c.volumeBytes())
			if twice := v.expand(2 * c.volumeBytes()); !proto.Equal(once, twice) {
				c.Errorf("want %v again, got %v", once, twice)
			}
		}},
		row{rpc: rpc, name: "answers OK for a volume that is larger than asked for", clause: "already larger: OK, and nothing shrinks", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes *= 2 })
			if got := v.expand(c.volumeBytes()).GetCapacityBytes(); got < 2*c.volumeBytes() {
				c.Errorf("want still %d bytes, got %d", 2*c.volumeBytes(), got)
			}
		}},
		row{rpc: rpc, name: "grows a volume no larger than the limit", clause: "the volume must not be bigger than limit_bytes", needs: needs, run: func(c *check) {
			r := c.volume("v").expandRequest(2 * c.volumeBytes())
			r.CapacityRange.LimitBytes = 2 * c.volumeBytes()
			resp, err := c.controller.ControllerExpandVolume(c.ctx, r)
			c.ok(err)
			equal(c, "bytes", 2*c.volumeBytes(), resp.GetCapacityBytes())
		}},
		row{rpc: rpc, name: "refuses a limit below the size that the volume has", clause: "the capacity range is not allowed: OUT_OF_RANGE", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes *= 2 })
			r := v.expandRequest(c.volumeBytes())
			r.CapacityRange.LimitBytes = c.volumeBytes()
			c.code(c.expand(r), codes.OutOfRange)
		}},
		row{rpc: rpc, name: "refuses a capability that the volume does not have", clause: "the capability is not supported by the volume: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			v := c.volume("v")
			r := v.expandRequest(2 * c.volumeBytes())
			r.VolumeCapability = v.unsupported()
			c.code(c.expand(r), codes.InvalidArgument)
		}},
		row{rpc: rpc, name: "grows a volume without a capability", clause: "volume_capability is optional", needs: needs, run: func(c *check) {
			r := c.volume("v").expandRequest(2 * c.volumeBytes())
			r.VolumeCapability = nil
			c.code(c.expand(r), codes.OK)
		}},
		row{rpc: rpc, name: "grows a volume that is published, with ONLINE", clause: "ONLINE with EXPAND_VOLUME: published volumes can be expanded", needs: append(needs, expandsOnline), run: func(c *check) {
			c.code(c.expand(c.volume("v").up().expandRequest(2*c.volumeBytes())), codes.OK)
		}},
		row{rpc: rpc, name: "refuses a volume that is published, without ONLINE", clause: "published, and no ONLINE: FAILED_PRECONDITION", needs: needs, run: func(c *check) {
			c.lacks(expandsOnline)
			c.code(c.expand(c.volume("v").up().expandRequest(2*c.volumeBytes())), codes.FailedPrecondition)
		}},
		row{rpc: rpc, name: "grows a volume that is not published, with OFFLINE", clause: "OFFLINE: volumes that are not published can be expanded", needs: append(needs, expandsOffline), run: func(c *check) {
			v := c.volume("v").up()
			v.down()
			c.code(c.expand(v.expandRequest(2*c.volumeBytes())), codes.OK)
		}},
		row{rpc: rpc, name: "shows the new size in ListVolumes", clause: "the list is of what the plugin knows", needs: append(needs, lists), run: func(c *check) {
			v := c.volume("v")
			equal(c, "capacity_bytes", v.expand(2*c.volumeBytes()).GetCapacityBytes(), v.listed().GetVolume().GetCapacityBytes())
		}},
		row{rpc: rpc, name: "leaves CreateVolume idempotent", clause: "a larger volume is compatible with required_bytes: OK and the same volume", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.expand(2 * c.volumeBytes())
			resp, err := c.create(v.request)
			c.ok(err)
			equal(c, "the volume", v.GetVolumeId(), resp.GetVolume().GetVolumeId())
		}},
	)
}
