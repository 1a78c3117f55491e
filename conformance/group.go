package conformance

import (
	"context"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const createGroup = "CreateVolumeGroupSnapshot"

func (c *check) groupRequest(what string, volumes ...*volume) *csi.CreateVolumeGroupSnapshotRequest {
	r := &csi.CreateVolumeGroupSnapshotRequest{Name: c.name(what), Parameters: maps.Clone(c.SnapshotParameters)}
	for _, v := range volumes {
		r.SourceVolumeIds = append(r.SourceVolumeIds, v.GetVolumeId())
	}
	return r
}

// cutGroup calls CreateVolumeGroupSnapshot. Whatever comes of it, the row
// deletes it again.
func (c *check) cutGroup(r *csi.CreateVolumeGroupSnapshotRequest) (*csi.VolumeGroupSnapshot, error) {
	resp, err := c.group.CreateVolumeGroupSnapshot(c.ctx, r)
	g := resp.GetGroupSnapshot()
	switch {
	case err == nil:
		c.undoLater("group snapshot "+g.GetGroupSnapshotId(), func(ctx context.Context) error { return c.deleteGroup(ctx, g) })
	case unclear(err):
		c.undoLater("group snapshot "+r.GetName(), func(ctx context.Context) error {
			resp, err := c.group.CreateVolumeGroupSnapshot(ctx, r)
			if err != nil {
				return unlessClear(err) // a clear answer says that there is none
			}
			return c.deleteGroup(ctx, resp.GetGroupSnapshot())
		})
	}
	return g, err
}

func (c *check) cutGroupError(r *csi.CreateVolumeGroupSnapshotRequest) error {
	_, err := c.cutGroup(r)
	return err
}

func (c *check) deleteGroup(ctx context.Context, g *csi.VolumeGroupSnapshot) error {
	_, err := c.group.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: members(g)})
	return err
}

// groupOf makes a group snapshot of two new volumes. The row is skipped if the
// driver cannot have one of them together.
func (c *check) groupOf(what string) (*csi.VolumeGroupSnapshot, []*volume) {
	c.Helper()
	c.need(creates, groupSnapshots)
	volumes := []*volume{c.volume(what + "-one"), c.volume(what + "-two")}
	g, err := c.cutGroup(c.groupRequest(what, volumes...))
	if status.Code(err) == codes.FailedPrecondition {
		c.Skipf("two new volumes cannot be snapshotted together: %s", describe(err))
	}
	c.ok(err)
	return g, volumes
}

// members are the ids of the snapshots of a group.
func members(g *csi.VolumeGroupSnapshot) []string {
	var ids []string
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

func groupRows() []row {
	needs := []need{creates, groupSnapshots}
	type request = *csi.CreateVolumeGroupSnapshotRequest
	good := func(c *check) request { return c.groupRequest("g", c.volume("one"), c.volume("two")) }
	rows := refusals(createGroup, needs, good, (*check).cutGroupError,
		spoiled[request]{name: "refuses a request without a name", clause: missingField, edit: func(r request) { r.Name = "" }},
		spoiled[request]{name: "refuses a request without volumes", clause: missingField, edit: func(r request) { r.SourceVolumeIds = nil }},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, level: Should, edit: func(r request) { r.SourceVolumeIds[1] = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	rows = append(rows, names(createGroup, needs, func(c *check, name string) (string, error) {
		r := c.groupRequest("", c.volume("v"))
		r.Name = name
		g, err := c.cutGroup(r)
		return g.GetGroupSnapshotId(), err
	})...)
	return append(rows,
		row{rpc: createGroup, name: "answers a snapshot of every volume", clause: "group_snapshot_id, snapshots and creation_time are required; inside the group's message a member names its group", needs: needs, run: func(c *check) {
			g, volumes := c.groupOf("g")
			c.limits(g)
			equal(c, "snapshots", len(volumes), len(g.GetSnapshots()))
			if g.GetGroupSnapshotId() == "" || !g.GetCreationTime().IsValid() {
				c.Errorf("want an id and a creation_time, got %v", g)
			}
			ready, sources := true, map[string]int{}
			for _, s := range g.GetSnapshots() {
				sources[s.GetSourceVolumeId()]++
				ready = ready && s.GetReadyToUse()
				equal(c, "group_snapshot_id of a member", g.GetGroupSnapshotId(), s.GetGroupSnapshotId())
			}
			if g.GetReadyToUse() && !ready {
				c.Errorf("want the group not ready while a member is not, got %v", g)
			}
			for _, v := range volumes {
				equal(c, "snapshots of volume "+v.GetVolumeId(), 1, sources[v.GetVolumeId()])
			}
		}},
		row{rpc: createGroup, name: "answers the same group to the same request", clause: "the same name, volumes and parameters: OK and the same group", needs: needs, run: func(c *check) {
			g, volumes := c.groupOf("g")
			same, err := c.cutGroup(c.groupRequest("g", volumes...))
			c.ok(err)
			equal(c, "the group", g.GetGroupSnapshotId(), same.GetGroupSnapshotId())
			sameSet(c, "snapshots", g.GetSnapshots(), same.GetSnapshots())
		}},
		row{rpc: createGroup, name: "refuses the same name for other volumes", clause: "a group of this name exists, of other volumes: ALREADY_EXISTS", needs: needs, run: func(c *check) {
			_, volumes := c.groupOf("g")
			c.code(c.cutGroupError(c.groupRequest("g", volumes[0])), codes.AlreadyExists)
			c.code(c.cutGroupError(c.groupRequest("g", volumes[0], c.volume("three"))), codes.AlreadyExists)
		}},
		row{rpc: createGroup, name: "leaves no snapshot if one of the volumes does not exist", clause: "no snapshot should be left of a group that failed", level: Should, needs: append(needs, listsSnapshots), run: func(c *check) {
			v := c.volume("v")
			r := c.groupRequest("g", v)
			r.SourceVolumeIds = append(r.SourceVolumeIds, c.noID())
			c.code(c.cutGroupError(r), codes.NotFound)
			if left := c.snapshotsOf(&csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId()}); len(left) > 0 {
				c.Errorf("want no snapshot, got %v", left)
			}
		}},
		row{rpc: createGroup, name: "makes snapshots that volumes can be made from", clause: "a snapshot of a group is a source for CreateVolume", needs: append(needs, snapshots), run: func(c *check) {
			g, volumes := c.groupOf("g")
			c.whenReady(g, volumes)
			for i, s := range g.GetSnapshots() {
				v := volumes[0]
				if s.GetSourceVolumeId() != v.GetVolumeId() {
					v = volumes[1]
				}
				r := c.createRequest(fmt.Sprint("restored-", i))
				v.from(fromSnapshot(s.GetSnapshotId()), v.GetCapacityBytes())(r)
				_, err := c.create(r)
				c.code(err, codes.OK)
			}
		}},
		row{rpc: "DeleteSnapshot", name: "refuses a snapshot that belongs to a group, or deletes it", clause: "a member that cannot be deleted alone: INVALID_ARGUMENT", needs: append(needs, snapshots), run: func(c *check) {
			g, _ := c.groupOf("g")
			_, err := c.controller.DeleteSnapshot(c.ctx, &csi.DeleteSnapshotRequest{SnapshotId: g.GetSnapshots()[0].GetSnapshotId()})
			c.code(err, codes.OK, codes.InvalidArgument)
		}},
		row{rpc: "ListSnapshots", name: "lists the members of a group", clause: "all snapshots are listed, however they were made", needs: append(needs, listsSnapshots), run: func(c *check) {
			g, _ := c.groupOf("g")
			for _, s := range g.GetSnapshots() {
				all := c.snapshotsOf(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId()})
				if len(all) != 1 || !proto.Equal(all[0], s) {
					c.Errorf("want %v, got %v", s, all)
				}
			}
		}},
		row{rpc: "GetSnapshot", name: "answers the members of a group", clause: "GetSnapshot is for members of a group, too", needs: append(needs, getsSnapshot), run: func(c *check) {
			g, _ := c.groupOf("g")
			for _, s := range g.GetSnapshots() {
				resp, err := c.controller.GetSnapshot(c.ctx, &csi.GetSnapshotRequest{SnapshotId: s.GetSnapshotId()})
				c.ok(err)
				if !proto.Equal(resp.GetSnapshot(), s) {
					c.Errorf("want %v, got %v", s, resp.GetSnapshot())
				}
			}
		}},
	)
}

// whenReady waits until all snapshots of a group can be used.
func (c *check) whenReady(g *csi.VolumeGroupSnapshot, volumes []*volume) {
	c.Helper()
	c.ok(retry(c.ctx, func(context.Context) error {
		got, err := c.cutGroup(c.groupRequest("g", volumes...))
		if err == nil && !got.GetReadyToUse() {
			return status.Errorf(codes.Unavailable, "group snapshot %s is not ready to use", g.GetGroupSnapshotId())
		}
		return err
	}))
}
