package conformance

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// health fails the row if a volume's health is not of the form that the message
// VolumeHealth demands.
func (c *check) health(h *csi.VolumeHealth) {
	c.Helper()
	c.limits(h)
	if h.GetVolumeId() == "" {
		c.Errorf("want a volume_id, got %v", h)
	}
	pairs := map[string]bool{}
	for _, s := range h.GetHealthStatuses() {
		if s.GetStatus() == csi.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE {
			c.Errorf("want a status, got %v", s)
		}
		if !camelForm.MatchString(s.GetReason()) {
			c.Errorf("want a reason in CamelCase, got %q", s.GetReason())
		}
		pair := fmt.Sprint(s.GetStatus(), s.GetReason())
		if pairs[pair] {
			c.Errorf("want each status and reason once, got %s twice", pair)
		}
		pairs[pair] = true
	}
}

func healthRows() []row {
	const list, get, node, storage = "ControllerListVolumeHealth", "ControllerGetVolumeHealth", "NodeGetVolumeHealth", "NodeGetStorageHealth"
	listHealth := func(c *check, r *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
		return c.controller.ControllerListVolumeHealth(c.ctx, r)
	}
	getHealth := func(c *check, id string) (*csi.ControllerGetVolumeHealthResponse, error) {
		return c.controller.ControllerGetVolumeHealth(c.ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	}
	nodeGet := func(c *check, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
		return c.node.NodeGetVolumeHealth(c.ctx, r)
	}
	return []row{
		{rpc: list, name: "refuses negative max_entries", clause: negative, needs: []need{listsHealth}, run: func(c *check) {
			_, err := listHealth(c, &csi.ControllerListVolumeHealthRequest{MaxEntries: -1})
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: list, name: "refuses a token that nobody gave", clause: "starting_token is not valid: ABORTED", needs: []need{listsHealth}, run: func(c *check) {
			_, err := listHealth(c, &csi.ControllerListVolumeHealthRequest{StartingToken: "conformance-no-such-token"})
			c.code(err, codes.Aborted)
		}},
		{rpc: list, name: "lists health in good form", clause: "an entry has a volume_id, and statuses with CamelCase reasons, each pair once", needs: []need{listsHealth}, run: func(c *check) {
			token := ""
			for range 10_000 {
				resp, err := listHealth(c, &csi.ControllerListVolumeHealthRequest{MaxEntries: 2, StartingToken: token})
				c.ok(err)
				if len(resp.GetEntries()) > 2 {
					c.Errorf("want at most 2 entries, got %d", len(resp.GetEntries()))
				}
				for _, h := range resp.GetEntries() {
					c.health(h)
				}
				if token = resp.GetNextToken(); token == "" {
					return
				}
			}
			c.Errorf("want a last page, got none")
		}},
		{rpc: list, name: "leaves a healthy volume out", clause: "volumes without an adverse condition should be left out", level: Should, needs: []need{creates, listsHealth}, run: func(c *check) {
			v := c.volume("v")
			resp, err := listHealth(c, &csi.ControllerListVolumeHealthRequest{})
			c.ok(err)
			for _, h := range resp.GetEntries() {
				if h.GetVolumeId() == v.GetVolumeId() {
					c.Errorf("want a new volume left out, got %v", h)
				}
			}
		}},
		{rpc: get, name: "refuses a request without a volume", clause: missingField, needs: []need{getsHealth}, run: func(c *check) {
			_, err := getHealth(c, "")
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: get, name: "refuses a volume that does not exist", clause: noVolume, needs: []need{getsHealth}, run: func(c *check) {
			_, err := getHealth(c, c.noID())
			c.code(err, codes.NotFound)
		}},
		{rpc: get, name: "finds nothing wrong with a new volume", clause: "volume_health is required, and empty for a healthy volume", needs: []need{creates, getsHealth}, run: func(c *check) {
			v := c.volume("v")
			resp, err := getHealth(c, v.GetVolumeId())
			c.ok(err)
			c.healthy(v, resp.GetVolumeHealth())
		}},
		{rpc: get, name: "refuses a volume that was deleted", clause: noVolume, needs: []need{creates, getsHealth}, run: func(c *check) {
			v := c.volume("v")
			v.delete()
			_, err := getHealth(c, v.GetVolumeId())
			c.code(err, codes.NotFound)
		}},
		{rpc: node, name: "refuses a request without a volume", clause: missingField, needs: []need{nodeHealth}, run: func(c *check) {
			_, err := nodeGet(c, &csi.NodeGetVolumeHealthRequest{VolumePublishPath: c.path("target", false)})
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: node, name: "refuses a volume that does not exist", clause: "the volume does not exist on the node: NOT_FOUND", needs: []need{nodeHealth}, run: func(c *check) {
			_, err := nodeGet(c, &csi.NodeGetVolumeHealthRequest{VolumeId: c.noID(), VolumePublishPath: c.path("target", false)})
			c.code(err, codes.NotFound)
		}},
		{rpc: node, name: "finds nothing wrong with a published volume", clause: "volume_health is required, and empty for a healthy volume", needs: []need{creates, nodeHealth}, run: func(c *check) {
			v := c.volume("v").up()
			resp, err := nodeGet(c, &csi.NodeGetVolumeHealthRequest{VolumeId: v.GetVolumeId(), VolumePublishPath: v.target, StagingTargetPath: v.staging})
			c.ok(err)
			c.healthy(v, resp.GetVolumeHealth())
		}},
		{rpc: node, name: "answers without paths", clause: "both paths are optional", needs: []need{creates, nodeHealth}, run: func(c *check) {
			v := c.volume("v").up()
			resp, err := nodeGet(c, &csi.NodeGetVolumeHealthRequest{VolumeId: v.GetVolumeId()})
			c.ok(err)
			c.healthy(v, resp.GetVolumeHealth())
		}},
		{rpc: storage, name: "answers in good form, each condition once", clause: "a backend has a status and a CamelCase reason; (status, reason, volume_capability) once", needs: []need{storageHealth}, run: func(c *check) {
			resp, err := c.node.NodeGetStorageHealth(c.ctx, &csi.NodeGetStorageHealthRequest{})
			c.ok(err)
			c.limits(resp)
			conditions := map[string]bool{}
			for _, b := range resp.GetBackendHealth() {
				if b.GetStatus() == csi.StorageHealthErrorType_UNKNOWN_STORAGE_HEALTH_ERROR_TYPE || !camelForm.MatchString(b.GetReason()) {
					c.Errorf("want a status and a reason in CamelCase, got %v", b)
				}
				condition := fmt.Sprint(b.GetStatus(), b.GetReason(), b.GetVolumeCapability())
				if conditions[condition] {
					c.Errorf("want each condition once, got %s twice", condition)
				}
				conditions[condition] = true
			}
		}},
	}
}

// healthy fails the row unless a new volume's health is its own and good.
func (c *check) healthy(v *volume, h *csi.VolumeHealth) {
	c.Helper()
	c.health(h)
	equal(c, "the health of volume", v.GetVolumeId(), h.GetVolumeId())
	if len(h.GetHealthStatuses()) > 0 {
		c.Errorf("want no adverse condition of a new volume, got %v", h.GetHealthStatuses())
	}
}
