package conformance

import (
	"fmt"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// mountGroup is a group that a row mounts for; no other has reason to use it.
const mountGroup = 31416

func publishRows() []row {
	const rpc = "NodePublishVolume"
	needs := []need{creates}
	type request = *csi.NodePublishVolumeRequest
	good := func(c *check) request { return c.volume("v").ready().publishRequest() }
	rows := refusals(rpc, needs, good, (*check).nodePublish,
		spoiled[request]{name: "refuses a request without a volume", clause: missingField, edit: func(r request) { r.VolumeId = "" }},
		spoiled[request]{name: "refuses a request without a target", clause: missingField, edit: func(r request) { r.TargetPath = "" }},
		spoiled[request]{name: "refuses a request without a capability", clause: missingField, edit: func(r request) { r.VolumeCapability = nil }},
		spoiled[request]{name: "refuses a capability without an access type", clause: missingField, edit: func(r request) { r.VolumeCapability.AccessType = nil }},
		spoiled[request]{name: "refuses a capability without an access mode", clause: missingField, edit: func(r request) { r.VolumeCapability.AccessMode = nil }},
		spoiled[request]{name: "refuses a relative target", clause: "the path must be absolute: INVALID_ARGUMENT", edit: func(r request) { r.TargetPath = "conformance-relative" }},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r request) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "publishes once for two calls at once", clause: "the call is idempotent; a second call at the same time may get ABORTED", needs: needs, run: func(c *check) {
			r := c.volume("v").ready().publishRequest()
			var errs [2]error
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() { _, errs[i] = c.node.NodePublishVolume(c.ctx, proto.CloneOf(r)) })
			}
			both.Wait()
			for _, err := range errs {
				c.code(err, codes.OK, codes.Aborted)
			}
			c.code(c.nodePublish(r), codes.OK)
			_, err := c.node.NodeUnpublishVolume(c.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: r.GetTargetPath()})
			c.code(err, codes.OK)
			if !c.NoData && exists(r.GetTargetPath()) {
				c.Errorf("want one publication of two calls, undone by one call, got something at %s", r.GetTargetPath())
			}
		}},
		row{rpc: rpc, name: "refuses a request without a staging path", clause: "STAGE_UNSTAGE_VOLUME and no staging_target_path: FAILED_PRECONDITION", needs: []need{creates, stages}, run: func(c *check) {
			r := c.volume("v").ready().publishRequest()
			r.StagingTargetPath = ""
			c.code(c.nodePublish(r), codes.FailedPrecondition)
		}},
		row{rpc: rpc, name: "refuses a capability that the volume does not have", clause: "the capability is not supported by the volume: FAILED_PRECONDITION", needs: needs, run: func(c *check) {
			v := c.volume("v").ready()
			r := v.publishRequest()
			r.VolumeCapability = v.unsupported()
			c.code(c.nodePublish(r), codes.FailedPrecondition, codes.InvalidArgument)
		}},
		row{rpc: rpc, name: "publishes a volume for reading", clause: "readonly: the volume is published for reading only", needs: needs, run: func(c *check) {
			r := c.volume("v").ready().publishRequest()
			r.Readonly = true
			c.code(c.nodePublish(r), codes.OK)
		}},
		row{rpc: rpc, name: "takes a target of more than 128 bytes", clause: "paths of 128 bytes at least must be taken, and longer ones should", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v").ready()
			v.target = c.path(longName, false)
			c.code(c.nodePublish(v.publishRequest()), codes.OK)
		}},
		row{rpc: rpc, name: "makes the target", clause: "the target is made by the plugin: a directory, or a block device", needs: needs, run: func(c *check) {
			c.looks()
			v := c.volume("v").up()
			info, err := os.Stat(v.target)
			switch {
			case err != nil:
				c.Errorf("want something at the target, got %v", err)
			case c.Block && info.Mode().Type() != os.ModeDevice:
				c.Errorf("want a block device at the target, got %s", info.Mode())
			case !c.Block && !info.IsDir():
				c.Errorf("want a directory at the target, got %s", info.Mode())
			}
		}},
		row{rpc: rpc, name: "mounts for a group", clause: "VOLUME_MOUNT_GROUP: the group is passed to the mount; new files should be the group's to read and write", needs: []need{creates, nodeMountGroup}, run: func(c *check) {
			capability := c.mountCapability(singleWriter)
			capability.GetMount().VolumeMountGroup = fmt.Sprint(mountGroup)
			v := c.with("v", capability).up()
			if c.NoData {
				return
			}
			c.write(v.data(v.target), 0, chunk, 'a')
			if group, ok := groupOfFile(v.data(v.target)); ok {
				equal(c, "the group of a new file", mountGroup, group)
			}
		}},
		row{rpc: rpc, name: "publishes again after the volume was unpublished", clause: "publishing can be undone and done again, with other arguments", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			v.unpublish()
			r := v.publishRequest()
			r.Readonly = true
			c.code(c.nodePublish(r), codes.OK)
		}},
	)
}

func unpublishRows() []row {
	const rpc = "NodeUnpublishVolume"
	needs := []need{creates}
	undo := func(c *check, volumeID, target string) error {
		_, err := c.node.NodeUnpublishVolume(c.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: target})
		return err
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a volume", clause: missingField, run: func(c *check) {
			c.code(undo(c, "", c.path("target", false)), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a request without a target", clause: missingField, needs: needs, run: func(c *check) {
			c.code(undo(c, c.volume("v").GetVolumeId(), ""), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "answers OK a second time", clause: "the call is idempotent", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			v.unpublish()
			c.code(undo(c, v.GetVolumeId(), v.target), codes.OK)
		}},
		{rpc: rpc, name: "answers OK for a volume that is not published", clause: "the call is idempotent, and may follow a publication that failed", needs: needs, run: func(c *check) {
			c.code(undo(c, c.volume("v").ready().GetVolumeId(), c.path("target", false)), codes.OK)
		}},
		{rpc: rpc, name: "answers for a volume that does not exist", clause: "nothing is published: OK; or the volume does not exist: NOT_FOUND", run: func(c *check) {
			c.code(undo(c, c.noID(), c.path("target", false)), codes.OK, codes.NotFound)
		}},
		{rpc: rpc, name: "deletes the target", clause: "the file or directory at the target must be deleted", needs: needs, run: func(c *check) {
			c.looks()
			v := c.volume("v").up()
			v.unpublish()
			if exists(v.target) {
				c.Errorf("want nothing at the target, got something at %s", v.target)
			}
		}},
		{rpc: rpc, name: "leaves the other targets as they are", clause: "only the publication at target_path is undone", needs: needs, run: func(c *check) {
			v := c.with("v", c.capability(c.sharedMode())).up()
			second := v.at(c.path("target", false))
			c.ok(c.nodePublish(second))
			v.unpublish()
			c.code(c.nodePublish(second), codes.OK)
			c.looks()
			if !exists(second.GetTargetPath()) {
				c.Errorf("want the volume at its second target, got nothing")
			}
		}},
	}
}
