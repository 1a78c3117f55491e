package conformance

import (
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// mostFilled is the largest volume that a row fills.
const mostFilled = 4 << 30

// data is where a row writes in a published volume.
func (v *volume) data(target string) string {
	if v.capability.GetBlock() != nil {
		return target
	}
	return filepath.Join(target, "data")
}

// lifeRows are about the data of one volume, for file systems and block volumes.
func lifeRows(what string, capability func(*check, csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability) []row {
	const rpc = "NodePublishVolume"
	needs := []need{creates}
	made := func(c *check) *volume {
		c.Helper()
		c.looks()
		return c.with("v", capability(c, singleWriter))
	}
	return []row{
		{rpc: rpc, name: "keeps the data of a " + what + " when it is published again", clause: "what was written is there the next time", needs: needs, run: func(c *check) {
			v := made(c).up()
			c.write(v.data(v.target), 0, dataBytes, 'a')
			c.holds(v.data(v.target), 0, dataBytes, 'a')
			v.unpublish()
			v.publish()
			c.holds(v.data(v.target), 0, dataBytes, 'a')
		}},
		{rpc: rpc, name: "keeps the data of a " + what + " when it leaves the node and comes back", clause: "what was written is there the next time", needs: needs, run: func(c *check) {
			v := made(c).up()
			c.write(v.data(v.target), 0, dataBytes, 'a')
			v.down()
			v.up()
			c.holds(v.data(v.target), 0, dataBytes, 'a')
		}},
		{rpc: rpc, name: "refuses writes to a " + what + " published for reading", clause: "readonly: the volume is published for reading only", needs: needs, run: func(c *check) {
			v := made(c).up()
			c.write(v.data(v.target), 0, dataBytes, 'a')
			v.unpublish()
			r := v.publishRequest()
			r.Readonly = true
			c.ok(c.nodePublish(r))
			c.holds(v.data(v.target), 0, dataBytes, 'a')
			c.refusesWrite(v.data(v.target))
			c.holds(v.data(v.target), 0, dataBytes, 'a')
		}},
		{rpc: rpc, name: "shows a " + what + " at both of its targets", clause: "a volume may be published at several targets of a node", needs: needs, run: func(c *check) {
			c.looks()
			v := c.with("v", capability(c, c.sharedMode())).up()
			second := v.at(c.path("target", false))
			c.ok(c.nodePublish(second))
			c.write(v.data(v.target), 0, dataBytes, 'a')
			c.holds(v.data(second.GetTargetPath()), 0, dataBytes, 'a')
		}},
		{rpc: rpc, name: "keeps the data of one " + what + " from another", clause: "volumes are separate storage", needs: needs, run: func(c *check) {
			one := made(c).up()
			two := c.volume("w", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{one.capability} }).up()
			c.write(one.data(one.target), 0, dataBytes, 'a')
			c.write(two.data(two.target), 0, dataBytes, 'b')
			c.holds(one.data(one.target), 0, dataBytes, 'a')
			c.holds(two.data(two.target), 0, dataBytes, 'b')
		}},
	}
}

func mount(c *check, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return c.mountCapability(mode)
}

func block(_ *check, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return blockCapability(mode)
}

func filesystemDataRows() []row {
	const rpc = "NodePublishVolume"
	return append(lifeRows("file system", mount),
		row{rpc: rpc, name: "publishes a new file system empty", clause: "a volume without a source is empty", needs: []need{creates}, run: func(c *check) {
			c.looks()
			c.empty(c.with("v", c.mountCapability(singleWriter)).up().target)
		}},
		row{rpc: rpc, name: "ends a file system at the limit of its volume", clause: "the volume must not be bigger than limit_bytes", needs: []need{creates}, run: func(c *check) {
			c.looks()
			if c.volumeBytes() > mostFilled {
				c.Skipf("a volume of %d bytes takes long to fill: this row wants at most %d", c.volumeBytes(), int64(mostFilled))
			}
			c.with("probe", c.mountCapability(singleWriter))
			v := c.sized(func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{c.mountCapability(singleWriter)}
				r.CapacityRange.LimitBytes = r.GetCapacityRange().GetRequiredBytes()
			}).up()
			if written, full := c.fill(v.data(v.target), c.volumeBytes()+dataBytes); !full {
				c.Errorf("want the file system full within %d bytes, got %d bytes written", c.volumeBytes(), written)
			}
		}},
	)
}

func blockDataRows() []row {
	const rpc = "NodePublishVolume"
	return append(lifeRows("block volume", block),
		row{rpc: rpc, name: "publishes a block volume of its size", clause: "a block volume must match the capacity range", needs: []need{creates}, run: func(c *check) {
			c.looks()
			v := c.with("v", blockCapability(singleWriter)).up()
			size := c.deviceBytes(v.target)
			if size < c.volumeBytes() {
				c.Errorf("want at least the %d bytes that were asked for, got %d", c.volumeBytes(), size)
			}
			if v.GetCapacityBytes() != 0 {
				equal(c, "bytes, as CreateVolume answered,", v.GetCapacityBytes(), size)
			}
		}},
		row{rpc: rpc, name: "ends a block volume where it should", clause: "a block volume must match the capacity range", needs: []need{creates}, run: func(c *check) {
			c.looks()
			v := c.with("v", blockCapability(singleWriter)).up()
			size := c.deviceBytes(v.target)
			c.write(v.target, size-chunk, chunk, 'a')
			c.holds(v.target, size-chunk, chunk, 'a')
			if err := writeAt(v.target, size, chunk, 'a'); err == nil {
				c.Errorf("want an error for a write past the end, got none")
			}
		}},
		row{rpc: rpc, name: "publishes a new block volume without others' data", clause: "a volume without a source is empty", level: Should, needs: []need{creates}, run: func(c *check) {
			c.looks()
			v := c.with("v", blockCapability(singleWriter)).up()
			c.holds(v.target, 0, dataBytes, 0)
		}},
	)
}
