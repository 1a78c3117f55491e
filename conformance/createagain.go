package conformance

import (
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const incompatible = "a volume of this name exists and is not compatible: ALREADY_EXISTS"

func createAgainRows() []row {
	compatible := "the same name with a compatible request: OK and the same volume"
	return []row{
		sameRow("answers the same volume to the same request", compatible, func(*check, *csi.CreateVolumeRequest) {}),
		sameRow("answers the same volume to a smaller size", compatible, func(_ *check, r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes /= 2 }),
		sameRow("answers the same volume to a limit that it keeps", compatible, func(_ *check, r *csi.CreateVolumeRequest) {
			r.CapacityRange.LimitBytes = 4 * r.GetCapacityRange().GetRequiredBytes()
		}),
		sameRow("answers the same volume to a request without a size", compatible, func(_ *check, r *csi.CreateVolumeRequest) { r.CapacityRange = nil }),
		incompatibleRow("refuses the same name with a larger size", func(_ *check, _ *volume, r *csi.CreateVolumeRequest) {
			r.CapacityRange.RequiredBytes *= 2
		}),
		incompatibleRow("refuses the same name with a limit below the size", func(c *check, v *volume, r *csi.CreateVolumeRequest) {
			if v.GetCapacityBytes() == 0 {
				c.Skipf("the driver does not tell the size of volumes")
			}
			r.CapacityRange = &csi.CapacityRange{LimitBytes: v.GetCapacityBytes() - 1}
		}),
		incompatibleRow("refuses the same name with other parameters", func(c *check, _ *volume, r *csi.CreateVolumeRequest) {
			if len(c.OtherParameters) == 0 {
				c.Skipf("no other parameters are known of this driver: set OtherParameters")
			}
			r.Parameters = c.OtherParameters
		}),
		incompatibleRow("refuses the same name with a volume as source", func(c *check, _ *volume, r *csi.CreateVolumeRequest) {
			c.need(clones)
			r.VolumeContentSource = fromVolume(c.volume("source").GetVolumeId())
		}),
		incompatibleRow("refuses the same name with a snapshot as source", func(c *check, _ *volume, r *csi.CreateVolumeRequest) {
			c.need(snapshots)
			r.VolumeContentSource = fromSnapshot(c.snapshot("s", c.volume("source")).GetSnapshotId())
		}),
		incompatibleRow("refuses the same name in another topology", func(c *check, _ *volume, r *csi.CreateVolumeRequest) {
			c.need(hasTopology)
			if len(c.OtherTopology) == 0 {
				c.Skipf("no other topology is known of this driver: set OtherTopology")
			}
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: c.OtherTopology}}}
		}),
		{rpc: createVolume, name: "refuses the same name with other mutable parameters", clause: "mutable_parameters have to be compatible, too", level: Should, needs: []need{creates, modifies}, run: func(c *check) {
			if len(c.ModifiedParameters) == 0 || maps.Equal(c.ModifiedParameters, c.MutableParameters) {
				c.Skipf("no other mutable parameters are known of this driver: set ModifiedParameters")
			}
			r := proto.CloneOf(c.volume("v").request)
			r.MutableParameters = c.ModifiedParameters
			c.code(c.createError(r), codes.AlreadyExists)
		}},
		{rpc: createVolume, name: "refuses the same name with another access type", clause: incompatible, needs: []need{creates}, run: func(c *check) {
			v := c.volume("v")
			r := proto.CloneOf(v.request)
			capability := blockCapability(singleWriter)
			if c.Block {
				capability = c.mountCapability(singleWriter)
			}
			c.with("probe", capability)
			r.VolumeCapabilities = []*csi.VolumeCapability{capability}
			if v.confirmed(capability) {
				c.Skipf("volumes of this driver can be used both ways")
			}
			c.code(c.createError(r), codes.AlreadyExists)
		}},
		{rpc: createVolume, name: "refuses the name of a copy with another source", clause: incompatible, needs: []need{creates, clones}, run: func(c *check) {
			one, two := c.volume("one"), c.volume("two")
			copied := c.volume("copy", one.from(fromVolume(one.GetVolumeId()), one.GetCapacityBytes()))
			r := proto.CloneOf(copied.request)
			r.VolumeContentSource = fromVolume(two.GetVolumeId())
			c.code(c.createError(r), codes.AlreadyExists)
			r.VolumeContentSource = nil
			c.code(c.createError(r), codes.AlreadyExists)
		}},
		{rpc: createVolume, name: "makes a new volume of a name whose volume was deleted", clause: "a deleted volume exists no more", needs: []need{creates}, run: func(c *check) {
			v := c.volume("v")
			v.delete()
			r := proto.CloneOf(v.request)
			r.CapacityRange.RequiredBytes *= 2
			_, err := c.create(r)
			c.code(err, codes.OK)
		}},
	}
}

// sameRow is a row about a second request that is compatible with a volume.
func sameRow(name, clause string, edit func(*check, *csi.CreateVolumeRequest)) row {
	return row{rpc: createVolume, name: name, clause: clause, needs: []need{creates}, run: func(c *check) {
		v := c.volume("v")
		r := proto.CloneOf(v.request)
		edit(c, r)
		resp, err := c.create(r)
		c.ok(err)
		if !proto.Equal(v.Volume, resp.GetVolume()) {
			c.Errorf("want the same volume, got %v after %v", resp.GetVolume(), v.Volume)
		}
	}}
}

// incompatibleRow is a row about a second request that is not compatible with a volume,
// which it must leave as it is.
func incompatibleRow(name string, edit func(*check, *volume, *csi.CreateVolumeRequest)) row {
	return row{rpc: createVolume, name: name, clause: incompatible, needs: []need{creates}, run: func(c *check) {
		v := c.volume("v")
		r := proto.CloneOf(v.request)
		edit(c, v, r)
		c.code(c.createError(r), codes.AlreadyExists)
		resp, err := c.create(v.request)
		c.ok(err)
		equal(c, "the volume's id", v.GetVolumeId(), resp.GetVolume().GetVolumeId())
	}}
}
