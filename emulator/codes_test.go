package emulator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
)

// inMemory serves volumes that are records only: the driver's answers are the
// same on every backend.
func inMemory(t *testing.T, edit ...func(*emulator.Config)) *driver {
	t.Helper()
	c := emulator.Config{
		Backend: memoryCase().open(t, ""), Profile: emulator.DefaultProfile("memory"),
		Nodes: []emulator.Node{{Name: "node-1"}, {Name: "node-2", Endpoint: "unix://" + filepath.Join(shortDir(t), "csi.sock")}},
	}
	for _, f := range edit {
		f(&c)
	}
	return start(t, c)
}

func TestCreateVolumeWithTheSameNameAndAnotherWish(t *testing.T) {
	t.Parallel()
	base := func() *csi.CreateVolumeRequest {
		return &csi.CreateVolumeRequest{
			Name: "same", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("ext4")},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib}, Parameters: map[string]string{"pool": "default"},
		}
	}
	for name, edit := range map[string]func(*csi.CreateVolumeRequest){
		"larger":             func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 32 * mib },
		"limited to less":    func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{LimitBytes: 8 * mib} },
		"other capability":   func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()} },
		"other file system":  func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mountCapability("xfs") },
		"other parameters":   func(r *csi.CreateVolumeRequest) { r.Parameters = nil },
		"other source":       fromVolume("vol-none"),
		"mutable parameters": func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "1"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := inMemory(t)
			first, err := d.CreateVolume(t.Context(), base())
			require.NoError(t, err)
			again, err := d.CreateVolume(t.Context(), base())
			require.NoError(t, err)
			require.Equal(t, first.GetVolume().GetVolumeId(), again.GetVolume().GetVolumeId())
			r := base()
			edit(r)
			_, err = d.CreateVolume(t.Context(), r)
			wantCode(t, codes.AlreadyExists, err)
		})
	}
}

func TestCreateVolumeRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*csi.CreateVolumeRequest)
		want codes.Code
	}{
		"no name":                      {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument},
		"no capability":                {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument},
		"a name of 129 bytes":          {func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 129) }, codes.InvalidArgument},
		"a control character":          {func(r *csi.CreateVolumeRequest) { r.Name = "a\x00b" }, codes.InvalidArgument},
		"a negative size":              {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument},
		"limit below required":         {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 }, codes.InvalidArgument},
		"an unknown parameter":         {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"colour": "red"} }, codes.InvalidArgument},
		"an unknown pool":              {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"pool": "gold"} }, codes.InvalidArgument},
		"an unknown mutable parameter": {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "1"} }, codes.InvalidArgument},
		"a source volume that is not":  {fromVolume("vol-none"), codes.NotFound},
		"a snapshot that is not":       {fromSnapshot("snap-none"), codes.NotFound},
		"more than the pool has":       {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 200 * gib }, codes.ResourceExhausted},
		"an exact size between pages": {func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 1000, LimitBytes: 1000}
		}, codes.OutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := inMemory(t)
			r := &csi.CreateVolumeRequest{
				Name: "new", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
				CapacityRange: &csi.CapacityRange{RequiredBytes: mib},
			}
			c.edit(r)
			_, err := d.CreateVolume(t.Context(), r)
			wantCode(t, c.want, err)
			list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			require.NoError(t, err)
			require.Empty(t, list.GetEntries(), "nothing is left of a refused request")
		})
	}
}

func TestCopiesAreNeverSmallerThanTheirSource(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("source", mountCapability(""), 32*mib)
	snap := d.snapshot("cut", v.id)
	for name, from := range map[string]func(*csi.CreateVolumeRequest){"clone": fromVolume(v.id), "restore": fromSnapshot(snap.GetSnapshotId())} {
		r := &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib},
		}
		from(r)
		_, err := d.CreateVolume(t.Context(), r)
		wantCode(t, codes.OutOfRange, err)
		r.CapacityRange = nil
		got, err := d.CreateVolume(t.Context(), r)
		require.NoError(t, err)
		require.EqualValues(t, 32*mib, got.GetVolume().GetCapacityBytes())
	}
}

func TestAttachAnswers(t *testing.T) {
	t.Parallel()
	attach := func(d *driver, id, node string, c *csi.VolumeCapability, readonly bool) error {
		_, err := d.ControllerPublishVolume(d.t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: id, NodeId: node, VolumeCapability: c, Readonly: readonly,
		})
		return err
	}
	multi := csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	t.Run("volume or node that is not", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		v := d.create("v", mountCapability(""), mib)
		wantCode(t, codes.NotFound, attach(d, "vol-none", "node-1", mountCapability(""), false))
		wantCode(t, codes.NotFound, attach(d, v.id, "node-9", mountCapability(""), false))
		wantCode(t, codes.InvalidArgument, attach(d, v.id, "node-1", blockCapability(), false))
	})
	t.Run("again in another way", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		v := d.create("v", mountCapability(""), mib)
		require.NoError(t, attach(d, v.id, "node-1", mountCapability(""), false))
		require.NoError(t, attach(d, v.id, "node-1", mountCapability(""), false))
		wantCode(t, codes.AlreadyExists, attach(d, v.id, "node-1", mountCapability(""), true))
		wantCode(t, codes.AlreadyExists, attach(d, v.id, "node-1", withMode(mountCapability(""), multi), false))
	})
	t.Run("a second node", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		v := d.create("v", mountCapability(""), mib)
		require.NoError(t, attach(d, v.id, "node-1", mountCapability(""), false))
		err := attach(d, v.id, "node-2", mountCapability(""), false)
		wantCode(t, codes.FailedPrecondition, err)
		require.ErrorContains(t, err, "node-1")
		_, err = d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
		wantCode(t, codes.FailedPrecondition, err)
	})
	t.Run("a second node with a multi-node mode", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		v := d.create("v", withMode(mountCapability(""), multi), mib)
		require.NoError(t, attach(d, v.id, "node-1", v.capability, false))
		require.NoError(t, attach(d, v.id, "node-2", v.capability, false))
		list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"node-1", "node-2"}, list.GetEntries()[0].GetStatus().GetPublishedNodeIds())
		_, err = d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id})
		require.NoError(t, err, "an empty node id means all nodes")
		v.delete()
	})
	t.Run("a single writer on two nodes", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		c := withMode(mountCapability(""), csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER)
		v := d.create("v", c, mib)
		require.NoError(t, attach(d, v.id, "node-1", c, false))
		wantCode(t, codes.FailedPrecondition, attach(d, v.id, "node-2", c, false))
		require.NoError(t, attach(d, v.id, "node-2", c, true))
	})
	t.Run("a full node", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t, func(c *emulator.Config) { c.Profile.MaxVolumesPerNode = 1 })
		first, second := d.create("first", mountCapability(""), mib), d.create("second", mountCapability(""), mib)
		require.NoError(t, attach(d, first.id, "node-1", mountCapability(""), false))
		wantCode(t, codes.ResourceExhausted, attach(d, second.id, "node-1", mountCapability(""), false))
		require.NoError(t, attach(d, second.id, "node-2", mountCapability(""), false))
	})
	t.Run("detaching what is gone", func(t *testing.T) {
		t.Parallel()
		d := inMemory(t)
		_, err := d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-none", NodeId: "node-1"})
		require.NoError(t, err)
		v := d.create("v", mountCapability(""), mib)
		_, err = d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: "node-9"})
		require.NoError(t, err)
	})
}

// TestSecondPublication is the table of the specification's NodePublishVolume.
func TestSecondPublication(t *testing.T) {
	t.Parallel()
	ok, exists, refused := codes.OK, codes.AlreadyExists, codes.FailedPrecondition
	for mode, want := range map[csi.VolumeCapability_AccessMode_Mode][4]codes.Code{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: {ok, exists, refused, refused},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  {ok, exists, ok, ok},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        {ok, exists, refused, refused},
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   {ok, exists, refused, refused},
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   {ok, exists, ok, ok},
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  {ok, exists, ok, ok},
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    {ok, exists, ok, ok},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := inMemory(t)
			for i, name := range []string{"same target, same rest", "same target, other rest", "other target, same rest", "other target, other rest"} {
				v := d.create(name, withMode(mountCapability(""), mode), mib)
				v.up()
				again := v.publishRequest()
				if i >= 2 {
					again.TargetPath += "-2"
				}
				again.Readonly = i%2 == 1
				_, err := d.NodePublishVolume(t.Context(), again)
				wantCode(t, want[i], err)
			}
		})
	}
}

func TestNodeAnswers(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)

	_, err := d.NodePublishVolume(t.Context(), v.publishRequest())
	wantCode(t, codes.FailedPrecondition, err)
	none := v.publishRequest()
	none.VolumeId = "vol-none"
	_, err = d.NodePublishVolume(t.Context(), none)
	wantCode(t, codes.NotFound, err)
	_, err = d.NodeStageVolume(t.Context(), v.stageRequest())
	wantCode(t, codes.FailedPrecondition, err)
	require.ErrorContains(t, err, "attach")
	notThere := v.stageRequest()
	notThere.VolumeId = "vol-none"
	_, err = d.NodeStageVolume(t.Context(), notThere)
	wantCode(t, codes.NotFound, err)

	v.up()
	unstaged := v.publishRequest()
	unstaged.StagingTargetPath = ""
	_, err = d.NodePublishVolume(t.Context(), unstaged)
	wantCode(t, codes.FailedPrecondition, err)
	other := v.stageRequest()
	other.VolumeCapability = mountCapability("xfs")
	_, err = d.NodeStageVolume(t.Context(), other)
	wantCode(t, codes.AlreadyExists, err)
	_, err = d.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	wantCode(t, codes.FailedPrecondition, err)
	_, err = d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target + "-other"})
	wantCode(t, codes.NotFound, err)
	_, err = d.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "vol-none", VolumePath: v.target})
	wantCode(t, codes.NotFound, err)
	_, err = d.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * mib},
	})
	wantCode(t, codes.OutOfRange, err)

	v.unpublish()
	_, err = d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target})
	require.NoError(t, err, "a second time is no error")
	_, err = d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-none", TargetPath: v.target})
	require.NoError(t, err, "nor is a volume that nobody knows")
}

// TestHostilePaths sends paths that try to leave the place they name.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	for _, b := range backendCases() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			state := shortDir(t)
			d := start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}})
			v := d.create("v", mountCapability(""), 16*mib)
			v.attach()
			outside := shortDir(t)
			link := filepath.Join(d.dir, "link")
			require.NoError(t, os.Symlink(outside, link))
			paths := []string{
				"relative", "/", d.dir + "/../" + filepath.Base(d.dir) + "/x", d.dir + "/new\nline", d.dir + "/nul\x00", d.dir + "//x", d.dir + "/x/",
				link, filepath.Join(link, "below"),
			}
			for _, path := range paths {
				r := v.stageRequest()
				r.StagingTargetPath = path
				_, err := d.NodeStageVolume(t.Context(), r)
				wantCode(t, codes.InvalidArgument, err)
			}
			v.stage()
			for _, path := range paths {
				r := v.publishRequest()
				r.TargetPath = path
				_, err := d.NodePublishVolume(t.Context(), r)
				wantCode(t, codes.InvalidArgument, err)
			}
			left, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Empty(t, left)
			for _, id := range []string{"../..", "a/../../b", "nul\x00", "new\nline"} {
				r := v.publishRequest()
				r.VolumeId = id
				_, err := d.NodePublishVolume(t.Context(), r)
				require.Error(t, err)
				_, err = d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
				require.NotEqual(t, codes.Internal, codeOf(err))
			}
			v.unstage()
			v.detach()
			v.delete()
		})
	}
}

func TestExpandAnswers(t *testing.T) {
	t.Parallel()
	expand := func(d *driver, id string, required, limit int64) (int64, error) {
		resp, err := d.ControllerExpandVolume(d.t.Context(), &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit},
		})
		return resp.GetCapacityBytes(), err
	}
	d := inMemory(t, func(c *emulator.Config) { require.True(t, c.Profile.Disable("ONLINE")) })
	v := d.create("v", mountCapability(""), 16*mib)
	_, err := expand(d, "vol-none", mib, 0)
	wantCode(t, codes.NotFound, err)
	size, err := expand(d, v.id, mib, 0)
	require.NoError(t, err, "large enough already")
	require.EqualValues(t, 16*mib, size)
	_, err = expand(d, v.id, 0, mib)
	wantCode(t, codes.OutOfRange, err)
	_, err = expand(d, v.id, 200*gib, 0)
	wantCode(t, codes.OutOfRange, err)
	v.attach()
	_, err = expand(d, v.id, 32*mib, 0)
	wantCode(t, codes.FailedPrecondition, err)
	v.detach()
	size, err = expand(d, v.id, 32*mib, 0)
	require.NoError(t, err)
	require.EqualValues(t, 32*mib, size)
}

func TestListsInPages(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	ids := []string{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		ids = append(ids, d.create(name, mountCapability(""), mib).id)
	}
	page := func(token string, n int32) (got []string, next string) {
		resp, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token, MaxEntries: n})
		require.NoError(t, err)
		for _, e := range resp.GetEntries() {
			got = append(got, e.GetVolume().GetVolumeId())
		}
		return got, resp.GetNextToken()
	}
	first, token := page("", 2)
	require.Equal(t, ids[:2], first)
	t.Log("the volume that the token stands for goes, another comes")
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: ids[1]})
	require.NoError(t, err)
	ids = append(ids, d.create("f", mountCapability(""), mib).id)
	second, token := page(token, 3)
	require.Equal(t, ids[2:5], second)
	third, token := page(token, 3)
	require.Equal(t, ids[5:], third)
	require.Empty(t, token)
	for _, bad := range []string{"x", "after-", "after-18446744073709551615", "after--1"} {
		_, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: bad})
		wantCode(t, codes.Aborted, err)
	}
	_, err = d.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, codes.InvalidArgument, err)
}

func TestCapacityIsAccountedByPool(t *testing.T) {
	t.Parallel()
	d := inMemory(t, func(c *emulator.Config) { c.Pools = map[string]int64{"default": gib, "small": 64 * mib} })
	available := func(pool string) int64 {
		resp, err := d.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"pool": pool}})
		require.NoError(t, err)
		return resp.GetAvailableCapacity()
	}
	inPool := func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"pool": "small"} }
	v := d.create("v", mountCapability(""), 48*mib, inPool)
	require.EqualValues(t, 16*mib, available("small"))
	require.EqualValues(t, gib, available("default"))
	require.Zero(t, available("gold"))
	_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "w", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 17 * mib}, Parameters: map[string]string{"pool": "small"},
	})
	wantCode(t, codes.ResourceExhausted, err)
	v.delete()
	require.EqualValues(t, 64*mib, available("small"))
}

func TestDisabledCapabilitiesAreUnimplemented(t *testing.T) {
	t.Parallel()
	for capability, call := range map[string]func(*driver) error{
		"CREATE_DELETE_VOLUME": func(d *driver) error {
			_, err := d.CreateVolume(d.t.Context(), &csi.CreateVolumeRequest{})
			return err
		},
		"PUBLISH_UNPUBLISH_VOLUME": func(d *driver) error {
			_, err := d.ControllerPublishVolume(d.t.Context(), &csi.ControllerPublishVolumeRequest{})
			return err
		},
		"LIST_VOLUMES": func(d *driver) error {
			_, err := d.ListVolumes(d.t.Context(), &csi.ListVolumesRequest{})
			return err
		},
		"GET_CAPACITY": func(d *driver) error {
			_, err := d.GetCapacity(d.t.Context(), &csi.GetCapacityRequest{})
			return err
		},
		"CREATE_DELETE_SNAPSHOT": func(d *driver) error {
			_, err := d.CreateSnapshot(d.t.Context(), &csi.CreateSnapshotRequest{})
			return err
		},
		"LIST_SNAPSHOTS": func(d *driver) error {
			_, err := d.ListSnapshots(d.t.Context(), &csi.ListSnapshotsRequest{})
			return err
		},
		"EXPAND_VOLUME": func(d *driver) error {
			_, err := d.ControllerExpandVolume(d.t.Context(), &csi.ControllerExpandVolumeRequest{})
			return err
		},
		"STAGE_UNSTAGE_VOLUME": func(d *driver) error {
			_, err := d.NodeStageVolume(d.t.Context(), &csi.NodeStageVolumeRequest{})
			return err
		},
		"GET_VOLUME_STATS": func(d *driver) error {
			_, err := d.NodeGetVolumeStats(d.t.Context(), &csi.NodeGetVolumeStatsRequest{})
			return err
		},
	} {
		t.Run(capability, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, codes.Unimplemented, codeOf(call(inMemory(t))))
			d := inMemory(t, func(c *emulator.Config) { require.True(t, c.Profile.Disable(capability)) })
			wantCode(t, codes.Unimplemented, call(d))
		})
	}
}
