package conformance

import (
	"maps"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// elsewhere is a topology with the node's keys where no node lies, or any.
func (c *check) elsewhere() *csi.Topology {
	segments := map[string]string{}
	for key := range c.here().GetSegments() {
		segments[key] = "conformance-nowhere"
	}
	if len(segments) == 0 {
		segments["conformance.example/zone"] = "nowhere"
	}
	return &csi.Topology{Segments: segments}
}

// hereOrSkip is the topology of the node; the row is skipped if it has none.
func (c *check) hereOrSkip() *csi.Topology {
	c.Helper()
	here := c.here()
	if here == nil {
		c.Skipf("the node has no topology")
	}
	return here
}

// within reports whether a place lies in a term: it has all of its segments.
func within(place, term *csi.Topology) bool {
	for key, value := range term.GetSegments() {
		found := false
		for k, v := range place.GetSegments() {
			found = found || (strings.EqualFold(k, key) && v == value)
		}
		if !found {
			return false
		}
	}
	return true
}

// reaches reports whether something accessible from these places, or from
// everywhere if there are none, is accessible from a term.
func reaches(places []*csi.Topology, term *csi.Topology) bool {
	for _, place := range places {
		if within(term, place) || within(place, term) {
			return true
		}
	}
	return len(places) == 0
}

func (c *check) inTopology(requisite, preferred []*csi.Topology) *csi.CreateVolumeRequest {
	r := c.createRequest("v")
	r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: requisite, Preferred: preferred}
	return r
}

// accessible makes a volume and fails the row unless it is accessible from one
// of the terms at least.
func (c *check) accessible(r *csi.CreateVolumeRequest, terms ...*csi.Topology) []*csi.Topology {
	c.Helper()
	resp, err := c.create(r)
	c.ok(err)
	places := resp.GetVolume().GetAccessibleTopology()
	c.topology(places...)
	for _, term := range terms {
		if reaches(places, term) {
			return places
		}
	}
	c.Errorf("want a volume accessible from one of %v, got %v", terms, places)
	return places
}

func topologyRows() []row {
	needs := []need{creates, hasTopology}
	type topologies = []*csi.Topology
	return []row{
		{rpc: createVolume, name: "refuses a topology requirement of nothing", clause: "requisite or preferred must be given: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			c.code(c.createError(c.inTopology(nil, nil)), codes.InvalidArgument)
		}},
		{rpc: createVolume, name: "makes a volume accessible from the one requisite topology", clause: "x == n: the volume is accessible from all requisite topologies", needs: needs, run: func(c *check) {
			here := c.hereOrSkip()
			c.accessible(c.inTopology(topologies{here}, nil), here)
		}},
		{rpc: createVolume, name: "makes a volume accessible from one of two requisite topologies", clause: "x < n: the topologies are chosen from the requisite ones", needs: needs, run: func(c *check) {
			here, there := c.hereOrSkip(), c.there()
			places := c.accessible(c.inTopology(topologies{here, there}, nil), here, there)
			for _, place := range places {
				if len(places) <= 2 && !reaches(topologies{here, there}, place) {
					c.Errorf("want places of %v and %v only, got %v", here, there, place)
				}
			}
		}},
		{rpc: createVolume, name: "prefers the preferred topology", clause: "preferred topologies are tried first, in their order", needs: needs, run: func(c *check) {
			here, there := c.hereOrSkip(), c.there()
			c.accessible(c.inTopology(topologies{here, there}, topologies{there, here}), there)
		}},
		{rpc: createVolume, name: "takes preferred topologies alone", clause: "requisite or preferred or both must be given", needs: needs, run: func(c *check) {
			here := c.hereOrSkip()
			c.accessible(c.inTopology(nil, topologies{here}), here)
		}},
		{rpc: createVolume, name: "falls back to a requisite topology", clause: "no preferred topology can be had: one of the requisite ones", needs: needs, run: func(c *check) {
			here, nowhere := c.hereOrSkip(), c.elsewhere()
			c.accessible(c.inTopology(topologies{nowhere, here}, topologies{nowhere}), here)
		}},
		{rpc: createVolume, name: "falls back from a preferred topology that cannot be had", clause: "no preferred topology can be had: any topology if there are no requisite ones", level: Should, needs: needs, run: func(c *check) {
			c.hereOrSkip()
			_, err := c.create(c.inTopology(nil, topologies{c.elsewhere()}))
			c.code(err, codes.OK, codes.ResourceExhausted)
		}},
		{rpc: createVolume, name: "refuses requisite topologies that cannot be had", clause: "no volume can be made there: RESOURCE_EXHAUSTED", needs: needs, run: func(c *check) {
			c.hereOrSkip()
			c.code(c.createError(c.inTopology(topologies{c.elsewhere()}, nil)), codes.ResourceExhausted)
		}},
		{rpc: createVolume, name: "refuses the same name where the volume is not", clause: "a volume of this name exists, elsewhere: ALREADY_EXISTS, or RESOURCE_EXHAUSTED", needs: needs, run: func(c *check) {
			here := c.hereOrSkip()
			r := c.inTopology(topologies{here}, nil)
			if places := c.accessible(r, here); len(places) == 0 {
				c.Skipf("the volume is accessible from everywhere")
			}
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: topologies{c.elsewhere()}}
			c.code(c.createError(r), codes.AlreadyExists, codes.ResourceExhausted)
		}},
		{rpc: createVolume, name: "answers the same volume to a wider requirement", clause: "the same name, accessible from the requirement: OK and the same volume", needs: needs, run: func(c *check) {
			here := c.hereOrSkip()
			r := c.inTopology(topologies{here}, nil)
			resp, err := c.create(r)
			c.ok(err)
			r.AccessibilityRequirements.Requisite = topologies{here, c.elsewhere()}
			same, err := c.create(r)
			c.ok(err)
			equal(c, "the volume", resp.GetVolume().GetVolumeId(), same.GetVolume().GetVolumeId())
		}},
		{rpc: createVolume, name: "chooses a topology where none is asked for", clause: "without a requirement the plugin may choose", needs: needs, run: func(c *check) {
			r := c.createRequest("v")
			r.AccessibilityRequirements = nil
			resp, err := c.create(r)
			c.ok(err)
			c.topology(resp.GetVolume().GetAccessibleTopology()...)
		}},
	}
}

// there is another topology in which the driver can make volumes; the row is
// skipped if none is known.
func (c *check) there() *csi.Topology {
	c.Helper()
	if len(c.OtherTopology) == 0 {
		c.Skipf("no other topology is known of this driver: set OtherTopology")
	}
	return &csi.Topology{Segments: maps.Clone(c.OtherTopology)}
}

func snapshotTopologyRows() []row {
	needs := []need{creates, snapshots, hasSnapTopology}
	return []row{
		{rpc: createSnapshot, name: "makes a snapshot usable from the requisite topology", clause: "the snapshot is usable from accessibility_requirements", needs: needs, run: func(c *check) {
			here := c.hereOrSkip()
			r := c.snapshotRequest("s", c.volume("v"))
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{here}}
			resp, err := c.cut(r)
			c.ok(err)
			places := resp.GetSnapshot().GetAccessibleTopology()
			c.topology(places...)
			if !reaches(places, here) {
				c.Errorf("want a snapshot usable from %v, got %v", here, places)
			}
			same, err := c.cut(r)
			c.ok(err)
			equal(c, "for the same request the snapshot", resp.GetSnapshot().GetSnapshotId(), same.GetSnapshot().GetSnapshotId())
		}},
		{rpc: createSnapshot, name: "refuses topologies that cannot be had", clause: "no snapshot can be made there: RESOURCE_EXHAUSTED", needs: needs, run: func(c *check) {
			c.hereOrSkip()
			r := c.snapshotRequest("s", c.volume("v"))
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{c.elsewhere()}}
			c.code(c.cutError(r), codes.ResourceExhausted)
		}},
		{rpc: createSnapshot, name: "refuses a topology requirement of nothing", clause: "requisite or preferred must be given: INVALID_ARGUMENT", needs: needs, run: func(c *check) {
			r := c.snapshotRequest("s", c.volume("v"))
			r.AccessibilityRequirements = &csi.TopologyRequirement{}
			c.code(c.cutError(r), codes.InvalidArgument)
		}},
		{rpc: createSnapshot, name: "makes volumes where its snapshot is usable", clause: "volumes of a snapshot are accessible from where it is usable", needs: needs, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			c.topology(s.GetAccessibleTopology()...)
			for i, place := range s.GetAccessibleTopology() {
				r := c.createRequest(string(rune('a' + i)))
				v.from(fromSnapshot(s.GetSnapshotId()), v.GetCapacityBytes())(r)
				r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{place}}
				c.accessible(r, place)
			}
		}},
	}
}
