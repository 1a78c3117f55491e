package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// longName is a name of 128 bytes, which makes its path longer.
const longName = "a-name-of-128-bytes-" +
	"012345678901234567890123456789012345678901234567890123456789" +
	"012345678901234567890123456789012345678901234567"

func stageRows() []row {
	const rpc, unstage = "NodeStageVolume", "NodeUnstageVolume"
	needs := []need{creates, stages}
	type request = *csi.NodeStageVolumeRequest
	good := func(c *check) request {
		v := c.volume("v")
		v.attach()
		return v.stageRequest()
	}
	undo := func(c *check, volumeID, path string) error {
		_, err := c.node.NodeUnstageVolume(c.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: path})
		return err
	}
	rows := refusals(rpc, needs, good, (*check).nodeStage,
		spoiled[request]{name: "refuses a request without a volume", clause: missingField, edit: func(r request) { r.VolumeId = "" }},
		spoiled[request]{name: "refuses a request without a path", clause: missingField, edit: func(r request) { r.StagingTargetPath = "" }},
		spoiled[request]{name: "refuses a request without a capability", clause: missingField, edit: func(r request) { r.VolumeCapability = nil }},
		spoiled[request]{name: "refuses a capability without an access type", clause: missingField, edit: func(r request) { r.VolumeCapability.AccessType = nil }},
		spoiled[request]{name: "refuses a capability without an access mode", clause: missingField, edit: func(r request) { r.VolumeCapability.AccessMode = nil }},
		spoiled[request]{name: "refuses a relative path", clause: "the path must be absolute: INVALID_ARGUMENT", edit: func(r request) { r.StagingTargetPath = "conformance-relative" }},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r request) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "answers OK a second time", clause: "staged there with the same capability: OK", needs: needs, run: func(c *check) {
			v := c.volume("v").ready()
			c.code(c.nodeStage(v.stageRequest()), codes.OK)
		}},
		row{rpc: rpc, name: "refuses another capability at the same path", clause: "staged there with another capability: ALREADY_EXISTS", needs: needs, run: func(c *check) {
			one, two := c.capability(singleWriter), c.capability(c.sharedMode())
			c.with("probe", two)
			v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{one, two} }).ready()
			r := v.stageRequest()
			r.VolumeCapability = two
			c.code(c.nodeStage(r), codes.AlreadyExists)
		}},
		row{rpc: rpc, name: "refuses another access type at the same path", clause: "staged there with another capability: ALREADY_EXISTS", needs: needs, run: func(c *check) {
			r := c.volume("v").ready().stageRequest()
			if r.VolumeCapability = blockCapability(singleWriter); c.Block {
				r.VolumeCapability = c.mountCapability(singleWriter)
			}
			c.code(c.nodeStage(r), codes.AlreadyExists, codes.FailedPrecondition)
		}},
		row{rpc: rpc, name: "refuses a capability that the volume does not have", clause: "the capability is not supported by the volume: FAILED_PRECONDITION", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			r := v.stageRequest()
			r.VolumeCapability = v.unsupported()
			c.code(c.nodeStage(r), codes.FailedPrecondition, codes.InvalidArgument)
		}},
		row{rpc: rpc, name: "takes a path of more than 128 bytes", clause: "paths of 128 bytes at least must be taken, and longer ones should", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.staging = c.path(longName, true)
			v.attach()
			c.code(c.nodeStage(v.stageRequest()), codes.OK)
		}},
		row{rpc: rpc, name: "stages again after the volume was unstaged", clause: "staging can be undone and done again", needs: needs, run: func(c *check) {
			v := c.volume("v").ready()
			v.unstage()
			v.stage()
		}},
		row{rpc: unstage, name: "refuses a request without a volume", clause: missingField, needs: []need{stages}, run: func(c *check) {
			c.code(undo(c, "", c.path("staging", true)), codes.InvalidArgument)
		}},
		row{rpc: unstage, name: "refuses a request without a path", clause: missingField, needs: needs, run: func(c *check) {
			c.code(undo(c, c.volume("v").GetVolumeId(), ""), codes.InvalidArgument)
		}},
		row{rpc: unstage, name: "answers OK for a volume that is not staged", clause: "the volume is not staged there: OK", needs: needs, run: func(c *check) {
			c.code(undo(c, c.volume("v").GetVolumeId(), c.path("staging", true)), codes.OK)
		}},
		row{rpc: unstage, name: "answers OK a second time", clause: "the volume is not staged there: OK", needs: needs, run: func(c *check) {
			v := c.volume("v").ready()
			v.unstage()
			c.code(undo(c, v.GetVolumeId(), v.staging), codes.OK)
		}},
		row{rpc: unstage, name: "answers for a volume that does not exist", clause: "not staged: OK; or the volume does not exist: NOT_FOUND", needs: []need{stages}, run: func(c *check) {
			c.code(undo(c, c.noID(), c.path("staging", true)), codes.OK, codes.NotFound)
		}},
		row{rpc: unstage, name: "leaves the directory empty", clause: "staging is undone; the directory is the orchestrator's", needs: needs, run: func(c *check) {
			c.looks()
			v := c.volume("v").ready()
			v.unstage()
			if !exists(v.staging) {
				return
			}
			c.empty(v.staging)
		}},
	)
}
