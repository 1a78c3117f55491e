package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// snapshotsOf lists snapshots, or ends the row.
func (c *check) snapshotsOf(r *csi.ListSnapshotsRequest) []*csi.Snapshot {
	c.Helper()
	resp, err := c.controller.ListSnapshots(c.ctx, r)
	c.ok(err)
	var all []*csi.Snapshot
	for _, e := range resp.GetEntries() {
		all = append(all, e.GetSnapshot())
	}
	return all
}

func listSnapshotRows() []row {
	const rpc = "ListSnapshots"
	list := func(c *check, max int32, token string) (ids []string, next string, err error) {
		resp, err := c.controller.ListSnapshots(c.ctx, &csi.ListSnapshotsRequest{MaxEntries: max, StartingToken: token})
		for _, e := range resp.GetEntries() {
			ids = append(ids, e.GetSnapshot().GetSnapshotId())
		}
		return ids, resp.GetNextToken(), err
	}
	make := func(c *check, what string) (string, func()) {
		s := c.snapshot(what, c.volume("of-"+what))
		return s.GetSnapshotId(), func() { c.deleteSnapshot(s.GetSnapshotId()) }
	}
	none := func(c *check, r *csi.ListSnapshotsRequest) {
		c.Helper()
		if all := c.snapshotsOf(r); len(all) > 0 {
			c.Errorf("want an empty list, got %v", all)
		}
	}
	needs := []need{creates, snapshots, listsSnapshots}
	return append(pages(rpc, needs, list, make),
		row{rpc: rpc, name: "lists a snapshot by its id, as it was made", clause: "snapshot_id lists only that snapshot", needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			c.snapshot("other", v)
			all := c.snapshotsOf(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId()})
			if len(all) != 1 || !proto.Equal(all[0], s) {
				c.Errorf("want %v alone, got %v", s, all)
			}
		}},
		row{rpc: rpc, name: "lists the snapshots of a volume", clause: "source_volume_id lists the snapshots of that volume", needs: needs, run: func(c *check) {
			one, two := c.volume("one"), c.volume("two")
			want := []*csi.Snapshot{c.snapshot("a", one), c.snapshot("b", one)}
			c.snapshot("c", two)
			sameSet(c, "snapshots", want, c.snapshotsOf(&csi.ListSnapshotsRequest{SourceVolumeId: one.GetVolumeId()}))
		}},
		row{rpc: rpc, name: "lists the snapshots of a volume in pages", clause: "filters and pages go together", needs: needs, run: func(c *check) {
			one := c.volume("one")
			want := []*csi.Snapshot{c.snapshot("a", one), c.snapshot("b", one)}
			c.snapshot("c", c.volume("two"))
			var got []*csi.Snapshot
			token := ""
			for range 10 {
				resp, err := c.controller.ListSnapshots(c.ctx, &csi.ListSnapshotsRequest{SourceVolumeId: one.GetVolumeId(), MaxEntries: 1, StartingToken: token})
				c.ok(err)
				for _, e := range resp.GetEntries() {
					got = append(got, e.GetSnapshot())
				}
				if token = resp.GetNextToken(); token == "" {
					break
				}
			}
			equal(c, "snapshots", len(want), len(got))
			sameSet(c, "snapshots", want, got)
		}},
		row{rpc: rpc, name: "answers an empty list for a snapshot that does not exist", clause: "the list is of what is within the parameters", needs: []need{listsSnapshots}, run: func(c *check) {
			none(c, &csi.ListSnapshotsRequest{SnapshotId: c.noID()})
		}},
		row{rpc: rpc, name: "answers an empty list for a volume that does not exist", clause: "the list is of what is within the parameters", needs: []need{listsSnapshots}, run: func(c *check) {
			none(c, &csi.ListSnapshotsRequest{SourceVolumeId: c.noID()})
		}},
		row{rpc: rpc, name: "answers an empty list for a volume without snapshots", clause: "the list is of what is within the parameters", needs: needs, run: func(c *check) {
			v := c.volume("v")
			c.snapshot("s", c.volume("other"))
			none(c, &csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId()})
		}},
		row{rpc: rpc, name: "answers what is within both filters", clause: "the list is of what is within the parameters", level: Should, needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			none(c, &csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId(), SourceVolumeId: c.volume("other").GetVolumeId()})
			equal(c, "snapshots", 1, len(c.snapshotsOf(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId(), SourceVolumeId: v.GetVolumeId()})))
		}},
		row{rpc: rpc, name: "lists within the limits", clause: "a string has at most 128 bytes, a map 4 KiB", needs: needs, run: func(c *check) {
			c.snapshot("s", c.volume("v"))
			for _, s := range c.snapshotsOf(&csi.ListSnapshotsRequest{}) {
				c.limits(s)
			}
		}},
	)
}

func getSnapshotRows() []row {
	const rpc = "GetSnapshot"
	get := func(c *check, id string) (*csi.GetSnapshotResponse, error) {
		return c.controller.GetSnapshot(c.ctx, &csi.GetSnapshotRequest{SnapshotId: id})
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a snapshot", clause: missingField, needs: []need{getsSnapshot}, run: func(c *check) {
			_, err := get(c, "")
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a snapshot that does not exist", clause: "no snapshot has this id: NOT_FOUND", needs: []need{getsSnapshot}, run: func(c *check) {
			_, err := get(c, c.noID())
			c.code(err, codes.NotFound)
		}},
		{rpc: rpc, name: "refuses a snapshot that was deleted", clause: "no snapshot has this id: NOT_FOUND", needs: []need{creates, snapshots, getsSnapshot}, run: func(c *check) {
			s := c.snapshot("s", c.volume("v"))
			c.deleteSnapshot(s.GetSnapshotId())
			_, err := get(c, s.GetSnapshotId())
			c.code(err, codes.NotFound)
		}},
		{rpc: rpc, name: "answers a snapshot as it was made", clause: "the current information of a snapshot", needs: []need{creates, snapshots, getsSnapshot}, run: func(c *check) {
			s := c.snapshot("s", c.volume("v"))
			resp, err := get(c, s.GetSnapshotId())
			c.ok(err)
			if !proto.Equal(resp.GetSnapshot(), s) {
				c.Errorf("want %v, got %v", s, resp.GetSnapshot())
			}
		}},
		{rpc: rpc, name: "answers a snapshot that is not ready yet", clause: "snapshots that were just made must be retrievable", needs: []need{creates, snapshots, getsSnapshot}, run: func(c *check) {
			resp, err := c.cut(c.snapshotRequest("s", c.volume("v")))
			c.ok(err)
			_, err = get(c, resp.GetSnapshot().GetSnapshotId())
			c.code(err, codes.OK)
		}},
	}
}
