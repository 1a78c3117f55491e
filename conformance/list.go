package conformance

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// pager is a list RPC: it returns the ids of a page and the next token.
type pager func(c *check, max int32, token string) (ids []string, next string, err error)

// pages are the rows about the pages of a list; make adds something to the list
// and returns its id and how to take it away.
func pages(rpc string, needs []need, list pager, make func(c *check, what string) (id string, remove func())) []row {
	return []row{
		{rpc: rpc, name: "refuses negative max_entries", clause: negative, needs: needs, run: func(c *check) {
			_, _, err := list(c, -1, "")
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: rpc, name: "refuses a token that nobody gave", clause: "starting_token is not valid: ABORTED", needs: needs, run: func(c *check) {
			_, _, err := list(c, 0, "conformance-no-such-token")
			c.code(err, codes.Aborted)
		}},
		{rpc: rpc, name: "lists what was made, once", clause: "everything that the plugin knows is listed", needs: needs, run: func(c *check) {
			want, _ := make(c, "one")
			ids, _, err := list(c, 0, "")
			c.ok(err)
			equal(c, "times that it is listed", 1, count(ids, want))
		}},
		{rpc: rpc, name: "lists nothing that was taken away", clause: "what is deleted is known no more", needs: needs, run: func(c *check) {
			gone, remove := make(c, "one")
			remove()
			ids, _, err := list(c, 0, "")
			c.ok(err)
			equal(c, "times that it is listed", 0, count(ids, gone))
		}},
		{rpc: rpc, name: "answers everything without max_entries", clause: "0 means no restriction", level: Should, needs: needs, run: func(c *check) {
			make(c, "one")
			make(c, "two")
			_, next, err := list(c, 0, "")
			c.ok(err)
			equal(c, "next_token", "", next)
		}},
		{rpc: rpc, name: "takes the largest max_entries", clause: "max_entries is any number that is not negative", needs: needs, run: func(c *check) {
			want, _ := make(c, "one")
			ids, _, err := list(c, math.MaxInt32, "")
			c.ok(err)
			equal(c, "times that it is listed", 1, count(ids, want))
		}},
		{rpc: rpc, name: "answers in pages that together are everything", clause: "at most max_entries, and next_token while there are more", needs: needs, run: func(c *check) {
			var want []string
			for i := range 5 {
				id, _ := make(c, fmt.Sprint(i))
				want = append(want, id)
			}
			var all []string
			token := ""
			for i := 0; ; i++ {
				ids, next, err := list(c, 2, token)
				c.ok(err)
				if len(ids) > 2 {
					c.fatalf("want at most 2 entries, got %d", len(ids))
				}
				if len(next) > stringLimit {
					c.Errorf("want a token of at most %d bytes, got %d", stringLimit, len(next))
				}
				all = append(all, ids...)
				if token = next; token == "" {
					break
				}
				if i > 10_000 {
					c.fatalf("want a last page, got %d", i)
				}
			}
			for _, id := range want {
				equal(c, "times that "+id+" is listed", 1, count(all, id))
			}
		}},
		{rpc: rpc, name: "goes on after a page while things come and go", clause: "next_token is a starting_token; what comes and goes meanwhile may be missed or listed twice", level: Should, needs: needs, run: func(c *check) {
			removes := map[string]func(){}
			for i := range 4 {
				id, remove := make(c, fmt.Sprint(i))
				removes[id] = remove
			}
			ids, token, err := list(c, 1, "")
			c.ok(err)
			if token == "" {
				c.fatalf("want a next_token after 1 of at least 4 entries, got none with %v", ids)
			}
			make(c, "later")
			for _, remove := range removes {
				remove()
			}
			for i := 0; token != ""; i++ {
				_, next, err := list(c, 1, token)
				if !c.code(err, codes.OK) {
					return
				}
				if token = next; i > 10_000 {
					c.fatalf("want a last page, got %d", i)
				}
			}
		}},
	}
}

func count(ids []string, id string) (n int) {
	for _, other := range ids {
		if other == id {
			n++
		}
	}
	return n
}

// volumes lists all volumes.
func (c *check) volumes() []*csi.ListVolumesResponse_Entry {
	c.Helper()
	resp, err := c.controller.ListVolumes(c.ctx, &csi.ListVolumesRequest{})
	c.ok(err)
	return resp.GetEntries()
}

// listed is the volume's entry of ListVolumes.
func (v *volume) listed() *csi.ListVolumesResponse_Entry {
	v.c.Helper()
	for _, e := range v.c.volumes() {
		if e.GetVolume().GetVolumeId() == v.GetVolumeId() {
			return e
		}
	}
	v.c.fatalf("want volume %s listed, got nothing", v.GetVolumeId())
	return nil
}

// sameVolume fails the row unless an answer is about the volume, with what must
// be the same always.
func (c *check) sameVolume(v *volume, got *csi.Volume) {
	c.Helper()
	equal(c, "volume_id", v.GetVolumeId(), got.GetVolumeId())
	if !maps.Equal(got.GetVolumeContext(), v.GetVolumeContext()) {
		c.Errorf("want volume_context %v, got %v", v.GetVolumeContext(), got.GetVolumeContext())
	}
}

func listRows() []row {
	const rpc = "ListVolumes"
	list := func(c *check, max int32, token string) (ids []string, next string, err error) {
		resp, err := c.controller.ListVolumes(c.ctx, &csi.ListVolumesRequest{MaxEntries: max, StartingToken: token})
		for _, e := range resp.GetEntries() {
			ids = append(ids, e.GetVolume().GetVolumeId())
		}
		return ids, resp.GetNextToken(), err
	}
	make := func(c *check, what string) (string, func()) {
		v := c.volume(what)
		return v.GetVolumeId(), v.delete
	}
	return append(pages(rpc, []need{creates, lists}, list, make),
		row{rpc: rpc, name: "lists a volume with its context", clause: "a volume always has the same volume_context", needs: []need{creates, lists}, run: func(c *check) {
			v := c.volume("v")
			c.sameVolume(v, v.listed().GetVolume())
		}},
		row{rpc: rpc, name: "lists a volume as it was made", clause: "where a volume is accessible from, and its size, do not depend on who asks", level: Should, needs: []need{creates, lists}, run: func(c *check) {
			v := c.volume("v")
			if e := v.listed(); !proto.Equal(e.GetVolume(), v.Volume) {
				c.Errorf("want %v, got %v", v.Volume, e.GetVolume())
			}
		}},
		row{rpc: rpc, name: "lists a copy with its source", clause: "content_source tells what a volume was made from", level: Should, needs: []need{creates, lists, clones}, run: func(c *check) {
			origin := c.volume("origin")
			v := c.volume("v", origin.from(fromVolume(origin.GetVolumeId()), origin.GetCapacityBytes()))
			if e := v.listed(); !proto.Equal(e.GetVolume(), v.Volume) {
				c.Errorf("want %v, got %v", v.Volume, e.GetVolume())
			}
		}},
		row{rpc: rpc, name: "lists within the limits", clause: "a string has at most 128 bytes, a map 4 KiB", needs: []need{creates, lists}, run: func(c *check) {
			c.limits(c.volume("v").listed())
		}},
		row{rpc: rpc, name: "has a status in every entry", clause: "status must be there with LIST_VOLUMES_PUBLISHED_NODES", needs: []need{creates, lists, listsNodes}, run: func(c *check) {
			if c.volume("v").listed().GetStatus() == nil {
				c.Errorf("want a status, got none")
			}
		}},
		row{rpc: rpc, name: "tells the nodes that a volume is published to", clause: "published_node_ids are the nodes that the volume is published to", needs: []need{creates, lists, listsNodes}, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			if ids := v.listed().GetStatus().GetPublishedNodeIds(); !slices.Contains(ids, v.node()) {
				c.Errorf("want node %q, got %q", v.node(), ids)
			}
			v.detach()
			if ids := v.listed().GetStatus().GetPublishedNodeIds(); slices.Contains(ids, v.node()) {
				c.Errorf("want no node after the volume was unpublished, got %q", ids)
			}
		}},
	)
}
