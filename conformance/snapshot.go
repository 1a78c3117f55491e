package conformance

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const createSnapshot = "CreateSnapshot"

func (c *check) snapshotRequest(what string, v *volume) *csi.CreateSnapshotRequest {
	return &csi.CreateSnapshotRequest{Name: c.name(what), SourceVolumeId: v.GetVolumeId(), Parameters: maps.Clone(c.SnapshotParameters)}
}

// cut calls CreateSnapshot. Whatever comes of it, the row deletes it again.
func (c *check) cut(r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	resp, err := c.controller.CreateSnapshot(c.ctx, r)
	switch {
	case err == nil:
		c.deleteSnapshotLater(resp.GetSnapshot().GetSnapshotId())
	case unclear(err):
		c.undoLater("snapshot "+r.GetName(), func(ctx context.Context) error {
			resp, err := c.controller.CreateSnapshot(ctx, r)
			if err != nil {
				return unlessClear(err) // a clear answer says that there is none
			}
			id := resp.GetSnapshot().GetSnapshotId()
			if _, err := c.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
				return fmt.Errorf("its id is %s: %w", id, err)
			}
			return nil
		})
	}
	return resp, err
}

func (c *check) cutError(r *csi.CreateSnapshotRequest) error {
	_, err := c.cut(r)
	return err
}

func (c *check) deleteSnapshotLater(id string) {
	c.undoLater("snapshot "+id, func(ctx context.Context) error {
		_, err := c.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return err
	})
}

// snapshot makes a snapshot of the volume and waits until it can be used.
func (c *check) snapshot(what string, v *volume) *csi.Snapshot {
	c.Helper()
	c.need(snapshots)
	r := c.snapshotRequest(what, v)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	late := time.NewTimer(c.timeout())
	defer late.Stop()
	for {
		resp, err := c.cut(r)
		c.ok(err)
		if resp.GetSnapshot().GetReadyToUse() {
			return resp.GetSnapshot()
		}
		select {
		case <-ticker.C:
		case <-late.C:
			c.fatalf("want a snapshot that becomes ready to use, got %v", resp)
		case <-c.ctx.Done():
			c.fatalf("wait for the snapshot: %v", context.Cause(c.ctx))
		}
	}
}

func (c *check) deleteSnapshot(id string) {
	c.Helper()
	c.ok(retry(c.ctx, func(ctx context.Context) error {
		_, err := c.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}))
	c.undone("snapshot " + id)
}

// whole fails the row unless a snapshot has all that it must have.
func (c *check) whole(s *csi.Snapshot, v *volume) {
	c.Helper()
	c.limits(s)
	equal(c, "source_volume_id", v.GetVolumeId(), s.GetSourceVolumeId())
	if s.GetSnapshotId() == "" {
		c.Errorf("want a snapshot_id, got %v", s)
	}
	if !s.GetCreationTime().IsValid() || s.GetCreationTime().AsTime().Unix() <= 0 {
		c.Errorf("want a creation_time, got %v", s.GetCreationTime())
	}
	if len(s.GetAccessibleTopology()) > 0 && !c.has[hasSnapTopology] {
		c.Errorf("want no accessible_topology without SNAPSHOT_ACCESSIBILITY_CONSTRAINTS, got %v", s.GetAccessibleTopology())
	}
}

func snapshotRows() []row {
	needs := []need{creates, snapshots}
	good := func(c *check) *csi.CreateSnapshotRequest { return c.snapshotRequest("s", c.volume("v")) }
	rows := refusals(createSnapshot, needs, good, (*check).cutError,
		spoiled[*csi.CreateSnapshotRequest]{name: "refuses a request without a name", clause: missingField, edit: func(r *csi.CreateSnapshotRequest) { r.Name = "" }},
		spoiled[*csi.CreateSnapshotRequest]{name: "refuses a request without a source", clause: missingField, edit: func(r *csi.CreateSnapshotRequest) { r.SourceVolumeId = "" }},
		spoiled[*csi.CreateSnapshotRequest]{name: "refuses a source that does not exist", clause: noVolume, level: Should, edit: func(r *csi.CreateSnapshotRequest) { r.SourceVolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	rows = append(rows, names(createSnapshot, needs, func(c *check, name string) (string, error) {
		v := c.volume("v")
		r := c.snapshotRequest("", v)
		r.Name = name
		resp, err := c.cut(r)
		return resp.GetSnapshot().GetSnapshotId(), err
	})...)
	return append(rows,
		row{rpc: createSnapshot, name: "answers a whole snapshot", clause: "snapshot_id, source_volume_id and creation_time are required", needs: needs, run: func(c *check) {
			v := c.volume("v")
			resp, err := c.cut(c.snapshotRequest("s", v))
			c.ok(err)
			c.whole(resp.GetSnapshot(), v)
		}},
		row{rpc: createSnapshot, name: "becomes ready to use", clause: "the same call, repeated, tells when ready_to_use is true", needs: needs, run: func(c *check) {
			v := c.volume("v")
			c.whole(c.snapshot("s", v), v)
		}},
		row{rpc: createSnapshot, name: "answers the same snapshot to the same request", clause: "the same name and source: OK and the same snapshot", needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			resp, err := c.cut(c.snapshotRequest("s", v))
			c.ok(err)
			if !proto.Equal(s, resp.GetSnapshot()) {
				c.Errorf("want the same snapshot, got %v after %v", resp.GetSnapshot(), s)
			}
		}},
		row{rpc: createSnapshot, name: "refuses the same name for another volume", clause: "a snapshot of this name exists, of another volume: ALREADY_EXISTS", needs: needs, run: func(c *check) {
			c.snapshot("s", c.volume("one"))
			c.code(c.cutError(c.snapshotRequest("s", c.volume("two"))), codes.AlreadyExists)
		}},
		row{rpc: createSnapshot, name: "makes one snapshot of two calls at once", clause: "one name is one snapshot; a second call at the same time may get ABORTED", needs: needs, run: cutTwiceAtOnce},
		row{rpc: createSnapshot, name: "makes a snapshot of a published volume", clause: "a volume may be in use while its snapshot is cut", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			c.cutInUse(c.snapshotRequest("s", v))
		}},
	)
}

// cutInUse makes a snapshot of a published volume. The row is skipped if the
// driver cannot.
func (c *check) cutInUse(r *csi.CreateSnapshotRequest) *csi.Snapshot {
	c.Helper()
	resp, err := c.cut(r)
	if status.Code(err) == codes.FailedPrecondition {
		c.form(err)
		c.Skipf("the driver makes no snapshot of a volume in use: %s", describe(err))
	}
	c.ok(err)
	return resp.GetSnapshot()
}

func cutTwiceAtOnce(c *check) {
	r := c.snapshotRequest("s", c.volume("v"))
	responses, errs := [2]*csi.CreateSnapshotResponse{}, [2]error{}
	var both sync.WaitGroup
	for i := range errs {
		both.Go(func() { responses[i], errs[i] = c.controller.CreateSnapshot(c.ctx, proto.CloneOf(r)) })
	}
	both.Wait()
	ids := map[string]bool{}
	for i, err := range errs {
		if err == nil {
			id := responses[i].GetSnapshot().GetSnapshotId()
			ids[id] = true
			c.deleteSnapshotLater(id)
		}
		c.code(err, codes.OK, codes.Aborted)
	}
	if len(ids) > 1 {
		c.Errorf("want one snapshot for one name, got %v", ids)
	}
	_, err := c.cut(r)
	c.code(err, codes.OK, codes.Aborted)
}

func deleteSnapshotRows() []row {
	const rpc = "DeleteSnapshot"
	needs := []need{creates, snapshots}
	remove := func(c *check, id string) error {
		_, err := c.controller.DeleteSnapshot(c.ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a snapshot", clause: missingField, needs: []need{snapshots}, run: func(c *check) {
			c.code(remove(c, ""), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "answers OK for a snapshot that does not exist", clause: "the snapshot does not exist, or no more: OK", needs: []need{snapshots}, run: func(c *check) {
			c.code(remove(c, c.noID()), codes.OK)
		}},
		{rpc: rpc, name: "answers OK a second time", clause: "the snapshot does not exist, or no more: OK", needs: needs, run: func(c *check) {
			s := c.snapshot("s", c.volume("v"))
			c.deleteSnapshot(s.GetSnapshotId())
			c.code(remove(c, s.GetSnapshotId()), codes.OK)
		}},
		{rpc: rpc, name: "leaves nothing that can be restored", clause: "the source does not exist: NOT_FOUND", needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			c.deleteSnapshot(s.GetSnapshotId())
			r := c.createRequest("restored")
			v.from(fromSnapshot(s.GetSnapshotId()), v.GetCapacityBytes())(r)
			c.code(c.createError(r), codes.NotFound)
		}},
		{rpc: rpc, name: "keeps volumes that were made from it, or the snapshot", clause: "the snapshot is in use: FAILED_PRECONDITION; a restored volume is a volume of its own", needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			restored := c.volume("restored", v.from(fromSnapshot(s.GetSnapshotId()), v.GetCapacityBytes()))
			err := remove(c, s.GetSnapshotId())
			if !c.code(err, codes.OK, codes.FailedPrecondition) {
				return
			}
			if err == nil {
				c.undone("snapshot " + s.GetSnapshotId())
			}
			if !restored.confirmed(restored.capability) {
				c.Errorf("want the restored volume as it was, got %q", restored.lastMessage())
			}
		}},
	}
}
