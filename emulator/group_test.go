package emulator_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator"
)

// group makes a group snapshot of volumes.
func (d *driver) group(name string, volumes ...*volume) *csi.VolumeGroupSnapshot {
	d.t.Helper()
	resp, err := d.CreateVolumeGroupSnapshot(d.t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: idsOf(volumes)})
	require.NoError(d.t, err)
	return resp.GetGroupSnapshot()
}

func idsOf(volumes []*volume) []string {
	var ids []string
	for _, v := range volumes {
		ids = append(ids, v.id)
	}
	return ids
}

func snapshotIDs(g *csi.VolumeGroupSnapshot) []string {
	var ids []string
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

func (d *driver) snapshots() []*csi.Snapshot {
	d.t.Helper()
	resp, err := d.ListSnapshots(d.t.Context(), &csi.ListSnapshotsRequest{})
	require.NoError(d.t, err)
	var all []*csi.Snapshot
	for _, e := range resp.GetEntries() {
		all = append(all, e.GetSnapshot())
	}
	return all
}

func TestGroupSnapshot(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	a, b := d.create("a", mountCapability(""), mib), d.create("b", mountCapability(""), 2*mib)
	g := d.group("g", a, b)
	require.True(t, g.GetReadyToUse())
	require.NotNil(t, g.GetCreationTime())
	require.Len(t, g.GetSnapshots(), 2)
	sources := map[string]int64{}
	for _, s := range g.GetSnapshots() {
		require.Equal(t, g.GetGroupSnapshotId(), s.GetGroupSnapshotId())
		require.True(t, s.GetReadyToUse())
		require.Equal(t, g.GetCreationTime().AsTime(), s.GetCreationTime().AsTime(), "all are of one moment")
		sources[s.GetSourceVolumeId()] = s.GetSizeBytes()
	}
	require.Equal(t, map[string]int64{a.id: mib, b.id: 2 * mib}, sources)

	t.Run("again is the same, in any order of the volumes", func(t *testing.T) {
		d := d.as(t)
		require.Equal(t, g.GetGroupSnapshotId(), d.group("g", b, a).GetGroupSnapshotId())
		require.Len(t, d.snapshots(), 2)
	})
	t.Run("of other volumes is another wish", func(t *testing.T) {
		_, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{a.id}})
		wantCode(t, codes.AlreadyExists, err)
	})
	t.Run("with other parameters is another wish", func(t *testing.T) {
		_, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{
			Name: "g", SourceVolumeIds: []string{a.id, b.id}, Parameters: map[string]string{"x": "y"},
		})
		wantCode(t, codes.AlreadyExists, err)
	})
	t.Run("a member is listed with its group and is not deleted alone", func(t *testing.T) {
		d := d.as(t)
		for _, s := range d.snapshots() {
			require.Equal(t, g.GetGroupSnapshotId(), s.GetGroupSnapshotId())
			_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId()})
			wantCode(t, codes.InvalidArgument, err)
			got, err := d.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: s.GetSnapshotId()})
			require.NoError(t, err)
			require.Equal(t, s.String(), got.GetSnapshot().String())
		}
	})
	t.Run("get", func(t *testing.T) {
		ids := snapshotIDs(g)
		got, err := d.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: ids})
		require.NoError(t, err)
		require.Equal(t, g.String(), got.GetGroupSnapshot().String())
		_, err = d.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: ids[:1]})
		wantCode(t, codes.InvalidArgument, err)
		_, err = d.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "group-none", SnapshotIds: ids})
		wantCode(t, codes.NotFound, err)
	})
	t.Run("delete", func(t *testing.T) {
		d := d.as(t)
		ids := snapshotIDs(g)
		_, err := d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: append(ids[:1:1], "snap-other")})
		wantCode(t, codes.InvalidArgument, err)
		for range 2 {
			_, err := d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: ids})
			require.NoError(t, err)
		}
		require.Empty(t, d.snapshots())
	})
}

func TestGroupSnapshotThatCannotBe(t *testing.T) {
	t.Parallel()
	d := inMemory(t, func(c *emulator.Config) { c.Pools = map[string]int64{"default": 4 * mib} })
	a, b := d.create("a", mountCapability(""), mib), d.create("b", mountCapability(""), 2*mib)
	for name, row := range map[string]struct {
		code    codes.Code
		request *csi.CreateVolumeGroupSnapshotRequest
	}{
		"no name":            {codes.InvalidArgument, &csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: idsOf([]*volume{a})}},
		"no volumes":         {codes.InvalidArgument, &csi.CreateVolumeGroupSnapshotRequest{Name: "g"}},
		"a volume twice":     {codes.InvalidArgument, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{a.id, a.id}}},
		"a volume too many":  {codes.NotFound, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{a.id, b.id, "vol-none"}}},
		"unknown parameters": {codes.InvalidArgument, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{a.id}, Parameters: map[string]string{"x": "y"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.as(t)
			_, err := d.CreateVolumeGroupSnapshot(t.Context(), row.request)
			wantCode(t, row.code, err)
			require.Empty(t, d.snapshots())
		})
	}
	t.Run("what was reserved for the members is free again", func(t *testing.T) {
		free, err := d.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
		require.NoError(t, err)
		require.EqualValues(t, mib, free.GetAvailableCapacity())
	})
}

// as is the driver within a subtest.
func (d *driver) as(t *testing.T) *driver {
	c := *d
	c.t = t
	return &c
}

// A restore of a member either gets its bytes or hears that the snapshot is gone,
// whenever its group is deleted.
func TestRestoreWhileTheGroupIsDeleted(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	for round := range 30 {
		g := d.group("g", v)
		var restored sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			restored.Go(func() {
				_, errs[i] = d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
					Name: fmt.Sprintf("r-%d-%d", round, i), VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
					VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
						Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshotIDs(g)[0]},
					}},
				})
			})
		}
		_, err := d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId()})
		restored.Wait()
		require.NoError(t, err)
		for _, err := range errs {
			require.Contains(t, []codes.Code{codes.OK, codes.NotFound, codes.Aborted}, status.Code(err), "%v", err)
		}
	}
}
