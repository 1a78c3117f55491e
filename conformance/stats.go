package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func (c *check) stats(r *csi.NodeGetVolumeStatsRequest) error {
	_, err := c.node.NodeGetVolumeStats(c.ctx, r)
	return err
}

// usage is what the node reports of a path of the volume, by unit.
func (v *volume) usage(path string) map[csi.VolumeUsage_Unit]*csi.VolumeUsage {
	v.c.Helper()
	resp, err := v.c.node.NodeGetVolumeStats(v.c.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: path, StagingTargetPath: v.staging})
	v.c.ok(err)
	v.c.limits(resp)
	units := map[csi.VolumeUsage_Unit]*csi.VolumeUsage{}
	for _, u := range resp.GetUsage() {
		if u.GetUnit() == csi.VolumeUsage_UNKNOWN || units[u.GetUnit()] != nil {
			v.c.Errorf("want each unit once, got %v", resp.GetUsage())
		}
		if u.GetTotal() <= 0 || u.GetUsed() > u.GetTotal() || u.GetAvailable() > u.GetTotal() {
			v.c.Errorf("want a total that is not below what is used or available, got %v", u)
		}
		units[u.GetUnit()] = u
	}
	return units
}

func statsRows() []row {
	const rpc = "NodeGetVolumeStats"
	needs := []need{creates, tellsStats}
	type request = *csi.NodeGetVolumeStatsRequest
	good := func(c *check) request {
		v := c.volume("v").up()
		return &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: v.target, StagingTargetPath: v.staging}
	}
	rows := refusals(rpc, needs, good, (*check).stats,
		spoiled[request]{name: "refuses a request without a volume", clause: missingField, edit: func(r request) { r.VolumeId = "" }},
		spoiled[request]{name: "refuses a request without a path", clause: missingField, edit: func(r request) { r.VolumePath = "" }},
		spoiled[request]{name: "refuses a volume that does not exist", clause: noVolume, edit: func(r request) { r.VolumeId = "conformance-nothing" }, codes: []codes.Code{codes.NotFound}},
		spoiled[request]{name: "refuses a path where nothing is", clause: "the volume does not exist on volume_path: NOT_FOUND", edit: func(r request) { r.VolumePath += "-nothing" }, codes: []codes.Code{codes.NotFound}},
	)
	return append(rows,
		row{rpc: rpc, name: "refuses the path of another volume", clause: "the volume does not exist on volume_path: NOT_FOUND", needs: needs, run: func(c *check) {
			one, two := c.volume("one").up(), c.volume("two").up()
			c.code(c.stats(&csi.NodeGetVolumeStatsRequest{VolumeId: one.GetVolumeId(), VolumePath: two.target, StagingTargetPath: two.staging}), codes.NotFound)
		}},
		row{rpc: rpc, name: "refuses a volume that is not published any more", clause: "the volume does not exist on volume_path: NOT_FOUND", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			v.unpublish()
			c.code(c.stats(&csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: v.target}), codes.NotFound)
		}},
		row{rpc: rpc, name: "tells the usage of a published volume", clause: "total and unit are required; nothing is negative", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			v.usage(v.target)
		}},
		row{rpc: rpc, name: "tells the usage of a staged volume", clause: "volume_path is any path where the volume was staged or published", needs: append(needs, stages), run: func(c *check) {
			v := c.volume("v").ready()
			v.usage(v.staging)
		}},
		row{rpc: rpc, name: "tells the usage without a staging path", clause: "staging_target_path is optional", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			c.code(c.stats(&csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: v.target}), codes.OK)
		}},
		row{rpc: rpc, name: "tells no more of a file system than the volume has", clause: "the size of a volume is its raw size, of which the file system needs some", level: Should, needs: needs, run: func(c *check) {
			c.looks()
			v := c.with("v", c.mountCapability(singleWriter)).up()
			bytes := v.usage(v.target)[csi.VolumeUsage_BYTES]
			if bytes == nil || v.GetCapacityBytes() == 0 {
				c.Skipf("the driver does not tell the bytes of volumes")
			}
			if bytes.GetTotal() > v.GetCapacityBytes() {
				c.Errorf("want at most %d bytes, got %v", v.GetCapacityBytes(), bytes)
			}
		}},
		row{rpc: rpc, name: "tells the size of a block volume", clause: "for a block volume total is required", needs: needs, run: func(c *check) {
			v := c.with("v", blockCapability(singleWriter)).up()
			bytes := v.usage(v.target)[csi.VolumeUsage_BYTES]
			if bytes == nil {
				c.fatalf("want the bytes of a block volume, got none")
			}
			if v.GetCapacityBytes() != 0 {
				equal(c, "total", v.GetCapacityBytes(), bytes.GetTotal())
			}
		}},
	)
}
