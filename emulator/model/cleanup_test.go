package model_test

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// cleanUp takes everything away, one call at a time, and asserts that it can be:
// no lock is held by a call that was given up, and nothing is left.
func (c *client) cleanUp(t *testing.T) {
	t.Helper()
	for _, f := range c.families {
		c.meet(t, f)
		for _, name := range f.volumes {
			for _, id := range f.ids[name] {
				c.takeAway(t, f, id)
			}
		}
		for _, name := range f.snapshots {
			for _, id := range f.ids[name] {
				c.must(t, f, "", &csi.DeleteSnapshotRequest{SnapshotId: id})
			}
		}
	}
	volumes := c.must(t, c.families[0], "", &csi.ListVolumesRequest{})
	require.Empty(t, as[*csi.ListVolumesResponse](volumes).GetEntries())
	snapshots := c.must(t, c.families[0], "", &csi.ListSnapshotsRequest{})
	require.Empty(t, as[*csi.ListSnapshotsResponse](snapshots).GetEntries())
	c.requireNothingLeft(t)
}

// must makes a call that nothing can keep from being answered OK.
func (c *client) must(t *testing.T, f *family, node string, request proto.Message) *operation {
	t.Helper()
	if node == "" {
		node = nodes[0]
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := c.call(ctx, f, node, request, false)
	require.Equal(t, codes.OK, o.code, "%s", o)
	return o
}

// meet asks for the ids of objects whose making nobody was told of.
func (c *client) meet(t *testing.T, f *family) {
	t.Helper()
	ask := func(request proto.Message) { c.call(t.Context(), f, nodes[0], request, false) }
	snapshots := c.must(t, f, "", &csi.ListSnapshotsRequest{})
	for _, entry := range as[*csi.ListSnapshotsResponse](snapshots).GetEntries() {
		source := entry.GetSnapshot().GetSourceVolumeId()
		if f.names[source] == "" || f.names[entry.GetSnapshot().GetSnapshotId()] != "" {
			continue
		}
		for _, name := range f.snapshots {
			ask(&csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
		}
	}
	ask(&csi.CreateVolumeRequest{
		Name: f.volumes[0], CapacityRange: size(32 * mib), VolumeCapabilities: []*csi.VolumeCapability{capability(writer)},
	})
	volumes := c.must(t, f, "", &csi.ListVolumesRequest{})
	for _, entry := range as[*csi.ListVolumesResponse](volumes).GetEntries() {
		source := entry.GetVolume().GetContentSource().GetSnapshot().GetSnapshotId()
		if f.names[source] == "" {
			continue
		}
		ask(&csi.CreateVolumeRequest{
			Name: f.volumes[1], CapacityRange: size(32 * mib), VolumeCapabilities: []*csi.VolumeCapability{capability(writer)},
			VolumeContentSource: sourceSnapshot(source),
		})
	}
}

// takeAway ends the life of a volume, wherever it stands in it.
func (c *client) takeAway(t *testing.T, f *family, id string) {
	t.Helper()
	for _, node := range nodes {
		for _, path := range c.paths(node, id, "t") {
			c.must(t, f, node, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
		}
		for _, path := range c.paths(node, id, "s") {
			c.must(t, f, node, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
		}
	}
	c.must(t, f, "", &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
	c.must(t, f, "", &csi.DeleteVolumeRequest{VolumeId: id})
}
