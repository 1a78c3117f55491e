package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
)

// growthDataRows are about volumes that grow with data in them: while they are
// published, and while they are not.
func growthDataRows() []row {
	const rpc = "ControllerExpandVolume"
	var rows []row
	for _, s := range shapes() {
		rows = append(rows,
			row{rpc: rpc, name: "makes a published " + s.what + " really larger", clause: "ONLINE: the published volume has the size, after NodeExpandVolume if that is required", needs: []need{creates, expands, expandsOnline}, run: func(c *check) {
				c.looks()
				v := c.with("v", s.capability(c, singleWriter)).up()
				before := v.size()
				c.write(v.data(v.target), 0, dataBytes, 'a')
				v.grow()
				c.larger(v, before)
			}},
			row{rpc: rpc, name: "makes a " + s.what + " really larger that is not published", clause: "the volume has the size when it is published, after NodeExpandVolume if that is required", needs: []need{creates, expands}, run: func(c *check) {
				c.looks()
				v := c.with("v", s.capability(c, singleWriter)).up()
				before := v.size()
				c.write(v.data(v.target), 0, dataBytes, 'a')
				v.down()
				required := v.expand(2 * c.volumeBytes()).GetNodeExpansionRequired()
				v.up()
				if required {
					c.need(nodeExpands)
					c.nodeGrow(v.nodeExpandRequest(v.target, 2*c.volumeBytes()))
				}
				c.larger(v, before)
			}},
		)
	}
	return rows
}

// grow doubles a published volume, on the node too if that is required.
func (v *volume) grow() {
	v.c.Helper()
	if v.expand(2 * v.c.volumeBytes()).GetNodeExpansionRequired() {
		v.c.need(nodeExpands)
		v.c.nodeGrow(v.nodeExpandRequest(v.target, 2*v.c.volumeBytes()))
	}
}

// size is the size of a published volume: of the device, or as the node tells
// that of the file system; 0 if it does not.
func (v *volume) size() int64 {
	v.c.Helper()
	if v.capability.GetBlock() != nil {
		return v.c.deviceBytes(v.target)
	}
	if !v.c.has[tellsStats] {
		return 0
	}
	return v.usage(v.target)[csi.VolumeUsage_BYTES].GetTotal()
}

// larger fails the row unless a volume of before bytes has grown to twice the
// target's size and has kept its data.
func (c *check) larger(v *volume, before int64) {
	c.Helper()
	c.holds(v.data(v.target), 0, dataBytes, 'a')
	after := v.size()
	if v.capability.GetBlock() != nil {
		if after < 2*c.volumeBytes() {
			c.Errorf("want a device of at least %d bytes, got %d", 2*c.volumeBytes(), after)
		}
		return
	}
	// A file system that is larger than its volume is shared with others.
	if before > 0 && before <= v.GetCapacityBytes() && after <= before {
		c.Errorf("want a file system of more than %d bytes, got %d", before, after)
	}
	if 2*c.volumeBytes() <= mostFilled {
		if written, full := c.fill(v.data(v.target)+"-more", c.volumeBytes()); full {
			c.Errorf("want room for %d bytes more, got it full with %d", c.volumeBytes(), written)
		}
	}
}
