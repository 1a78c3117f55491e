package conformance

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func groupAnswerRows() []row {
	const get, remove = "GetVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"
	needs := []need{creates, groupSnapshots}
	getGroup := func(c *check, id string, snapshots ...string) (*csi.GetVolumeGroupSnapshotResponse, error) {
		return c.group.GetVolumeGroupSnapshot(c.ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots})
	}
	deleteGroup := func(c *check, id string, snapshots ...string) error {
		_, err := c.group.DeleteVolumeGroupSnapshot(c.ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots})
		return err
	}
	return []row{
		{rpc: get, name: "refuses a request without a group", clause: missingField, needs: needs, run: func(c *check) {
			_, err := getGroup(c, "", c.noID())
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: get, name: "refuses a request without snapshots", clause: "a required list has an element at least: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			_, err := getGroup(c, g.GetGroupSnapshotId())
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: get, name: "refuses a group that does not exist", clause: "no group has this id: NOT_FOUND", needs: needs, run: func(c *check) {
			_, err := getGroup(c, c.noID(), c.noID())
			c.code(err, codes.NotFound)
		}},
		{rpc: get, name: "refuses snapshots that are not the group's", clause: "a mismatch that can be detected: INVALID_ARGUMENT", level: Should, needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			_, err := getGroup(c, g.GetGroupSnapshotId(), members(g)[0], c.noID())
			c.code(err, codes.InvalidArgument)
			_, err = getGroup(c, g.GetGroupSnapshotId(), members(g)[0])
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: get, name: "answers a group as it was made", clause: "the current information of a group", needs: needs, run: func(c *check) {
			g, volumes := c.groupOf("g")
			c.whenReady(g, volumes)
			g, err := c.cutGroup(c.groupRequest("g", volumes...))
			c.ok(err)
			resp, err := getGroup(c, g.GetGroupSnapshotId(), members(g)...)
			c.ok(err)
			equal(c, "group_snapshot_id", g.GetGroupSnapshotId(), resp.GetGroupSnapshot().GetGroupSnapshotId())
			sameSet(c, "snapshots", g.GetSnapshots(), resp.GetGroupSnapshot().GetSnapshots())
			c.limits(resp)
		}},
		{rpc: get, name: "refuses a group that was deleted", clause: "no group has this id: NOT_FOUND", needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			c.groupGone(g)
			_, err := getGroup(c, g.GetGroupSnapshotId(), members(g)...)
			c.code(err, codes.NotFound)
		}},
		{rpc: remove, name: "refuses a request without a group", clause: missingField, needs: needs, run: func(c *check) {
			c.code(deleteGroup(c, "", c.noID()), codes.InvalidArgument)
		}},
		{rpc: remove, name: "refuses a request without snapshots", clause: "a required list has an element at least: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			c.code(deleteGroup(c, g.GetGroupSnapshotId()), codes.InvalidArgument)
		}},
		{rpc: remove, name: "answers OK for a group that does not exist", clause: "the group does not exist, or no more: OK", needs: needs, run: func(c *check) {
			c.code(deleteGroup(c, c.noID(), c.noID()), codes.OK)
		}},
		{rpc: remove, name: "answers OK a second time", clause: "the group does not exist, or no more: OK", needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			c.groupGone(g)
			c.code(deleteGroup(c, g.GetGroupSnapshotId(), members(g)...), codes.OK)
		}},
		{rpc: remove, name: "refuses snapshots that are not the group's", clause: "a mismatch that can be detected: INVALID_ARGUMENT", level: Should, needs: needs, run: func(c *check) {
			g, _ := c.groupOf("g")
			c.code(deleteGroup(c, g.GetGroupSnapshotId(), members(g)[0], c.noID()), codes.InvalidArgument)
			_, err := getGroup(c, g.GetGroupSnapshotId(), members(g)...)
			c.code(err, codes.OK)
		}},
		{rpc: remove, name: "deletes the snapshots with their group", clause: "all snapshots of the group are deleted", needs: append(needs, listsSnapshots), run: func(c *check) {
			g, _ := c.groupOf("g")
			c.groupGone(g)
			for _, id := range members(g) {
				if left := c.snapshotsOf(&csi.ListSnapshotsRequest{SnapshotId: id}); len(left) > 0 {
					c.Errorf("want no snapshot of a deleted group, got %v", left)
				}
			}
		}},
	}
}

// groupGone deletes a group, or ends the row.
func (c *check) groupGone(g *csi.VolumeGroupSnapshot) {
	c.Helper()
	c.ok(retry(c.ctx, func(ctx context.Context) error { return c.deleteGroup(ctx, g) }))
	c.undone("group snapshot " + g.GetGroupSnapshotId())
}
