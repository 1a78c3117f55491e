package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shape is one way to use volumes, for rows that are the same for all.
type shape struct {
	what       string
	capability func(*check, csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability
}

func shapes() []shape { return []shape{{"file system", mount}, {"block volume", block}} }

// written is a volume with data that is not published any more.
func (c *check) written(s shape, fill byte) *volume {
	c.Helper()
	c.looks()
	v := c.with("origin", s.capability(c, singleWriter)).up()
	c.write(v.data(v.target), 0, dataBytes, fill)
	v.down()
	return v
}

// rewrite writes other data to a volume that is not published.
func (v *volume) rewrite(fill byte) {
	v.c.Helper()
	v.up()
	v.c.write(v.data(v.target), 0, dataBytes, fill)
	v.down()
}

// copyOf makes a volume from a source and publishes it, the origin being gone
// from the node.
func (v *volume) copyOf(source *csi.VolumeContentSource, bytes int64) *volume {
	v.c.Helper()
	made := v.c.volume("copy", v.from(source, bytes))
	made.capability = v.capability
	return made.up()
}

func copyDataRows() []row {
	const rpc = createVolume
	var rows []row
	for _, k := range copyings() {
		for _, s := range shapes() {
			of := k.what + ", " + s.what
			rows = append(rows,
				row{rpc: rpc, name: "copies the data of a source, " + of, clause: "the volume has the data of its source", needs: k.needs, run: func(c *check) {
					v := c.written(s, 'a')
					copied := v.copyOf(k.source(c, v), v.GetCapacityBytes())
					c.holds(copied.data(copied.target), 0, dataBytes, 'a')
				}},
				row{rpc: rpc, name: "makes a copy that is a volume of its own, " + of, clause: "a copy and its source do not change each other", needs: k.needs, run: func(c *check) {
					v := c.written(s, 'a')
					source := k.source(c, v)
					copied := v.copyOf(source, v.GetCapacityBytes())
					copied.down()
					v.rewrite('b')
					copied.up()
					c.holds(copied.data(copied.target), 0, dataBytes, 'a')
					copied.down()
					copied.rewrite('c')
					v.up()
					c.holds(v.data(v.target), 0, dataBytes, 'b')
				}},
				row{rpc: rpc, name: "makes a larger copy with both the size and the data, or none, " + of, clause: "a larger volume than the source: OUT_OF_RANGE, or both the size and the data", needs: k.needs, run: func(c *check) {
					largerCopy(c, s, k)
				}},
			)
		}
	}
	for _, s := range shapes() {
		rows = append(rows,
			row{rpc: createSnapshot, name: "keeps a snapshot as it was when the volume changes, " + s.what, clause: "a snapshot is of a point in time", needs: []need{creates, snapshots}, run: func(c *check) {
				v := c.written(s, 'a')
				snapshot := c.snapshot("s", v)
				v.rewrite('b')
				copied := v.copyOf(fromSnapshot(snapshot.GetSnapshotId()), v.GetCapacityBytes())
				c.holds(copied.data(copied.target), 0, dataBytes, 'a')
			}},
			row{rpc: createSnapshot, name: "has in a snapshot of a published volume what was flushed, " + s.what, clause: "a snapshot is of a point in time", level: Should, needs: []need{creates, snapshots}, run: func(c *check) {
				c.looks()
				v := c.with("origin", s.capability(c, singleWriter)).up()
				c.write(v.data(v.target), 0, dataBytes, 'a')
				snapshot := c.cutInUse(c.snapshotRequest("s", v))
				c.write(v.data(v.target), 0, dataBytes, 'b')
				v.down()
				c.snapshot("s", v)
				copied := v.copyOf(fromSnapshot(snapshot.GetSnapshotId()), v.GetCapacityBytes())
				c.holds(copied.data(copied.target), 0, dataBytes, 'a')
			}},
			row{rpc: "DeleteVolume", name: "keeps the data of a snapshot, or the volume, " + s.what, clause: "snapshots survive their volume fully usable; or FAILED_PRECONDITION", needs: []need{creates, snapshots}, run: func(c *check) {
				v := c.written(s, 'a')
				snapshot := c.snapshot("s", v)
				_, err := c.controller.DeleteVolume(c.ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
				c.code(err, codes.OK, codes.FailedPrecondition)
				if err == nil {
					c.undone("volume " + v.GetVolumeId())
				}
				copied := v.copyOf(fromSnapshot(snapshot.GetSnapshotId()), v.GetCapacityBytes())
				c.holds(copied.data(copied.target), 0, dataBytes, 'a')
			}},
		)
	}
	return rows
}

func largerCopy(c *check, s shape, k copying) {
	v := c.written(s, 'a')
	r := c.createRequest("copy")
	v.from(k.source(c, v), 2*v.GetCapacityBytes())(r)
	resp, err := c.create(r)
	if status.Code(err) == codes.OutOfRange {
		c.Skipf("the driver makes no copy that is larger than its source: %s", describe(err))
	}
	c.ok(err)
	copied := &volume{Volume: resp.GetVolume(), c: c, request: r, capability: v.capability}
	copied.up()
	c.holds(copied.data(copied.target), 0, dataBytes, 'a')
	if v.capability.GetBlock() != nil {
		if size := c.deviceBytes(copied.target); size < 2*v.GetCapacityBytes() {
			c.Errorf("want a device of at least %d bytes, got %d", 2*v.GetCapacityBytes(), size)
		}
		return
	}
	if 2*v.GetCapacityBytes() > mostFilled {
		return
	}
	// More fits than into the source.
	if written, full := c.fill(copied.data(copied.target)+"-more", v.GetCapacityBytes()); full {
		c.Errorf("want room for %d bytes more in the larger copy, got it full with %d", v.GetCapacityBytes(), written)
	}
}
