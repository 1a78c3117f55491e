package conformance

import (
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func capacityRows() []row {
	const rpc = "GetCapacity"
	needs := []need{tellsCapacity}
	get := func(c *check, r *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		c.Helper()
		resp, err := c.controller.GetCapacity(c.ctx, r)
		c.ok(err)
		c.limits(resp)
		return resp
	}
	same := func(c *check) *csi.GetCapacityRequest {
		r := c.createRequest("")
		return &csi.GetCapacityRequest{VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters()}
	}
	return []row{
		{rpc: rpc, name: "answers a capacity that is not negative", clause: "available_capacity must not be negative", needs: needs, run: func(c *check) {
			get(c, &csi.GetCapacityRequest{})
		}},
		{rpc: rpc, name: "answers for capabilities and parameters", clause: "capabilities and parameters are those of CreateVolume", needs: needs, run: func(c *check) {
			get(c, same(c))
		}},
		{rpc: rpc, name: "answers for the topology of the node", clause: "accessible_topology is that of a volume", needs: append(needs, hasTopology), run: func(c *check) {
			r := same(c)
			if r.AccessibleTopology = c.here(); r.AccessibleTopology == nil {
				c.Skipf("the node has no topology")
			}
			get(c, r)
		}},
		{rpc: rpc, name: "has nothing where there is no storage", clause: "the capacity is that of the topology", needs: append(needs, hasTopology), run: func(c *check) {
			resp, err := c.controller.GetCapacity(c.ctx, &csi.GetCapacityRequest{AccessibleTopology: c.elsewhere()})
			if c.code(err, codes.OK, codes.InvalidArgument) && resp.GetAvailableCapacity() != 0 {
				c.Errorf("want 0 bytes where no node is, got %d", resp.GetAvailableCapacity())
			}
		}},
		{rpc: rpc, name: "has a maximum that is not below the minimum", clause: "sizes must not be negative; the maximum is the largest size, the minimum the smallest", needs: needs, run: func(c *check) {
			resp := get(c, same(c))
			if resp.GetMaximumVolumeSize() == nil || resp.GetMinimumVolumeSize() == nil {
				c.Skipf("the driver does not tell both a maximum and a minimum")
			}
			if largest, smallest := resp.GetMaximumVolumeSize().GetValue(), resp.GetMinimumVolumeSize().GetValue(); largest < smallest {
				c.Errorf("want a maximum of at least %d bytes, got %d", smallest, largest)
			}
		}},
		{rpc: rpc, name: "tells the largest size that can be asked for", clause: "maximum_volume_size is the largest required_bytes: more is OUT_OF_RANGE", needs: append(needs, creates), run: func(c *check) {
			largest := get(c, same(c)).GetMaximumVolumeSize()
			if largest == nil || largest.GetValue() == math.MaxInt64 {
				c.Skipf("the driver has no maximum")
			}
			r := c.createRequest("v")
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: largest.GetValue() + 1}
			c.code(c.createError(r), codes.OutOfRange, codes.ResourceExhausted)
		}},
		{rpc: rpc, name: "tells the smallest limit that can be asked for", clause: "minimum_volume_size is the smallest limit_bytes: less is OUT_OF_RANGE", needs: append(needs, creates), run: func(c *check) {
			smallest := get(c, same(c)).GetMinimumVolumeSize()
			if smallest.GetValue() < 2 {
				c.Skipf("the driver has no minimum")
			}
			r := c.createRequest("v")
			r.CapacityRange = &csi.CapacityRange{LimitBytes: smallest.GetValue() - 1}
			c.code(c.createError(r), codes.OutOfRange)
			r.Name, r.CapacityRange = c.name("w"), &csi.CapacityRange{LimitBytes: smallest.GetValue()}
			_, err := c.create(r)
			c.code(err, codes.OK)
		}},
	}
}
