package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (v *volume) nodeExpandRequest(path string, bytes int64) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumePath: path, StagingTargetPath: v.staging,
		CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapability: v.capability,
	}
}

func (c *check) nodeExpand(r *csi.NodeExpandVolumeRequest) error {
	_, err := c.node.NodeExpandVolume(c.ctx, r)
	return err
}

// nodeGrow grows a volume on the node. The row is skipped where its file system
// cannot grow in use, for which the specification has FAILED_PRECONDITION.
func (c *check) nodeGrow(r *csi.NodeExpandVolumeRequest) *csi.NodeExpandVolumeResponse {
	c.Helper()
	resp, err := c.node.NodeExpandVolume(c.ctx, r)
	if status.Code(err) == codes.FailedPrecondition {
		c.form(err)
		c.Skipf("the file system cannot grow in use: %s", describe(err))
	}
	c.ok(err)
	return resp
}

// grown is a published volume that has grown in the controller, if that can grow
// it, and has to grow on the node.
func (c *check) grown() *volume {
	c.Helper()
	c.need(creates, nodeExpands)
	v := c.volume("v")
	if c.has[expands] && !c.has[expandsOnline] {
		v.expand(2 * c.volumeBytes())
	}
	v.up()
	if c.has[expands] && c.has[expandsOnline] {
		v.expand(2 * c.volumeBytes())
	}
	return v
}

func nodeExpandRows() []row {
	const rpc = "NodeExpandVolume"
	needs := []need{creates, nodeExpands}
	type request = *csi.NodeExpandVolumeRequest
	good := func(c *check) request {
		v := c.volume("v").up()
		return v.nodeExpandRequest(v.target, c.volumeBytes())
	}
	size := func(required, limit int64) func(request) {
		return func(r request) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	rows := refusals(rpc, needs, good, (*check).nodeExpand,
		spoiled[request]{name: "refuses a request without a volume", clause: missingField, edit: func(r request) { r.VolumeId = "" }},
		spoiled[request]{name: "refuses a request without a path", clause: missingField, edit: func(r request) { r.VolumePath = "" }},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r request) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
		spoiled[request]{name: "refuses negative required_bytes", clause: negative, edit: size(-1, 0)},
		spoiled[request]{name: "refuses a negative limit_bytes", clause: negative, edit: size(0, -1)},
		spoiled[request]{name: "refuses a limit below the required size", clause: "the capacity range is not allowed: OUT_OF_RANGE (or INVALID_ARGUMENT)", edit: size(hugeBytes, hugeBytes/2), codes: []codes.Code{codes.OutOfRange, codes.InvalidArgument}},
		spoiled[request]{name: "refuses a size that the volume does not have", clause: "the capacity range is not allowed: OUT_OF_RANGE", edit: size(hugeBytes, 0), codes: []codes.Code{codes.OutOfRange}},
		spoiled[request]{name: "refuses a path where nothing is", clause: "only volumes that are staged or published on volume_path can be expanded", edit: func(r request) { r.VolumePath += "-nothing" }, codes: []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument}},
	)
	return append(rows,
		row{rpc: rpc, name: "grows a published volume", clause: "the volume is at least required_bytes", needs: needs, run: func(c *check) {
			v := c.grown()
			resp := c.nodeGrow(v.nodeExpandRequest(v.target, 2*c.volumeBytes()))
			if got := resp.GetCapacityBytes(); got != 0 && got < 2*c.volumeBytes() {
				c.Errorf("want at least %d bytes, got %d", 2*c.volumeBytes(), got)
			}
		}},
		row{rpc: rpc, name: "grows a staged volume", clause: "the call may be made before NodePublishVolume", needs: append(needs, stages), run: func(c *check) {
			v := c.volume("v")
			if c.has[expands] {
				v.expand(2 * c.volumeBytes())
			}
			v.ready()
			c.nodeGrow(v.nodeExpandRequest(v.staging, 2*c.volumeBytes()))
		}},
		row{rpc: rpc, name: "answers OK a second time", clause: "already as large as asked for: OK", level: Should, needs: needs, run: func(c *check) {
			v := c.grown()
			c.nodeGrow(v.nodeExpandRequest(v.target, 2*c.volumeBytes()))
			c.code(c.nodeExpand(v.nodeExpandRequest(v.target, 2*c.volumeBytes())), codes.OK)
		}},
		row{rpc: rpc, name: "answers OK for a volume that is larger than asked for", clause: "already larger: OK", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			c.code(c.nodeExpand(v.nodeExpandRequest(v.target, c.volumeBytes()/2)), codes.OK)
		}},
		row{rpc: rpc, name: "grows to all that there is without a capacity range", clause: "capacity_range is optional", needs: needs, run: func(c *check) {
			v := c.grown()
			r := v.nodeExpandRequest(v.target, 0)
			r.CapacityRange = nil
			c.nodeGrow(r)
		}},
		row{rpc: rpc, name: "grows a volume without a capability and a staging path", clause: "volume_capability and staging_target_path are optional", needs: needs, run: func(c *check) {
			v := c.grown()
			r := v.nodeExpandRequest(v.target, 2*c.volumeBytes())
			r.VolumeCapability, r.StagingTargetPath = nil, ""
			c.nodeGrow(r)
		}},
		row{rpc: rpc, name: "refuses a capability that the volume does not have", clause: "the capability is not supported by the volume: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			r := v.nodeExpandRequest(v.target, c.volumeBytes())
			r.VolumeCapability = v.unsupported()
			c.code(c.nodeExpand(r), codes.InvalidArgument)
		}},
	)
}
