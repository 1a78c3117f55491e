package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hugeBytes is more than any storage has: 4 EiB.
const hugeBytes = 1 << 62

func createSizeRows() []row {
	needs := []need{creates}
	good := func(c *check) *csi.CreateVolumeRequest { return c.createRequest("v") }
	size := func(required, limit int64) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	rows := refusals(createVolume, needs, good, (*check).createError,
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a capacity range of nothing", clause: "at least one of required_bytes and limit_bytes must be given: INVALID_ARGUMENT", edit: size(0, 0)},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses negative required_bytes", clause: negative, edit: size(-1, 0)},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a negative limit_bytes", clause: negative, edit: size(0, -1)},
		spoiled[*csi.CreateVolumeRequest]{
			name: "refuses a limit below the required size", clause: "the capacity range is not allowed: OUT_OF_RANGE (or INVALID_ARGUMENT)",
			edit: size(2<<30, 1<<30), codes: []codes.Code{codes.OutOfRange, codes.InvalidArgument},
		},
		spoiled[*csi.CreateVolumeRequest]{
			name: "refuses a size that no storage has", clause: "the capacity range is not allowed: OUT_OF_RANGE",
			edit: size(hugeBytes, 0), codes: []codes.Code{codes.OutOfRange, codes.ResourceExhausted},
		},
	)
	return append(rows,
		row{rpc: createVolume, name: "makes a volume without a capacity range", clause: "without a capacity range the plugin chooses", needs: needs, run: func(c *check) {
			c.limits(c.volume("v", func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }).Volume)
		}},
		row{rpc: createVolume, name: "makes a volume at least as large as required", clause: "the volume must be at least required_bytes", needs: needs, run: func(c *check) {
			v := c.volume("v")
			if got := v.GetCapacityBytes(); got != 0 && got < c.volumeBytes() {
				c.Errorf("want at least %d bytes, got %d", c.volumeBytes(), got)
			}
		}},
		row{rpc: createVolume, name: "makes a volume no larger than the limit", clause: "the volume must not be bigger than limit_bytes", needs: needs, run: func(c *check) {
			v := c.sized(size(c.volumeBytes(), 2*c.volumeBytes()))
			if got := v.GetCapacityBytes(); got != 0 && (got < c.volumeBytes() || got > 2*c.volumeBytes()) {
				c.Errorf("want between %d and %d bytes, got %d", c.volumeBytes(), 2*c.volumeBytes(), got)
			}
		}},
		row{rpc: createVolume, name: "makes a volume of exactly the size that is both required and the limit", clause: "equal required_bytes and limit_bytes are an exact size", needs: needs, run: func(c *check) {
			v := c.sized(size(c.volumeBytes(), c.volumeBytes()))
			if got := v.GetCapacityBytes(); got != 0 && got != c.volumeBytes() {
				c.Errorf("want %d bytes, got %d", c.volumeBytes(), got)
			}
		}},
		row{rpc: createVolume, name: "keeps a limit without a required size", clause: "the volume must not be bigger than limit_bytes", needs: needs, run: func(c *check) {
			v := c.sized(size(0, c.volumeBytes()))
			if got := v.GetCapacityBytes(); got > c.volumeBytes() {
				c.Errorf("want at most %d bytes, got %d", c.volumeBytes(), got)
			}
		}},
		row{rpc: createVolume, name: "makes no volume larger than a limit of one byte", clause: "the capacity range is not allowed: OUT_OF_RANGE", needs: needs, run: func(c *check) {
			r := c.createRequest("v")
			size(0, 1)(r)
			resp, err := c.create(r)
			if c.code(err, codes.OutOfRange, codes.OK) && resp.GetVolume().GetCapacityBytes() > 1 {
				c.Errorf("want OUT_OF_RANGE or a volume of a byte, got %d bytes", resp.GetVolume().GetCapacityBytes())
			}
		}},
	)
}

// sized makes a volume. The row is skipped if the driver has no such size.
func (c *check) sized(edit func(*csi.CreateVolumeRequest)) *volume {
	c.Helper()
	r := c.createRequest("v")
	edit(r)
	resp, err := c.create(r)
	if status.Code(err) == codes.OutOfRange {
		c.Skipf("the driver has no volumes of this size: %s", describe(err))
	}
	c.ok(err)
	return &volume{Volume: resp.GetVolume(), c: c, request: r, capability: r.GetVolumeCapabilities()[0]}
}
