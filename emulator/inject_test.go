package emulator_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

func (d *driver) inject(text string) string {
	d.t.Helper()
	id, err := d.emulator.InjectText(d.t.Context(), text)
	require.NoError(d.t, err)
	return id
}

// attachTo is ControllerPublishVolume with a deadline.
func (d *driver) attachTo(ctx context.Context, v *volume) error {
	_, err := d.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: v.node, VolumeCapability: v.capability})
	return err
}

func TestFaultReturnsACode(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	d.inject(`ControllerPublishVolume{volume=` + v.id + `}: 2*return(UNAVAILABLE,"come back later")->ok`)
	for range 2 {
		err := d.attachTo(t.Context(), v)
		wantCode(t, codes.Unavailable, err)
		require.ErrorContains(t, err, "come back later")
		list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		require.NoError(t, err)
		require.Empty(t, list.GetEntries()[0].GetStatus().GetPublishedNodeIds(), "nothing was done")
	}
	require.NoError(t, d.attachTo(t.Context(), v))
	d.emulator.Journal().Want(t, "ControllerPublishVolume{code=OK}")
	d.emulator.Journal().WantCount(t, 2, `ControllerPublishVolume{fault="fault-1: 2*return(UNAVAILABLE,\"come back later\")"}`)
	require.Equal(t, 2, d.emulator.Faults()[0].Fired)
}

func TestFaultLosesTheReply(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	d.inject("CreateVolume: drop->ok")
	create := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}}
	_, err := d.CreateVolume(t.Context(), create)
	wantCode(t, codes.Unavailable, err)
	list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 1, "the volume is there")
	again, err := d.CreateVolume(t.Context(), create)
	require.NoError(t, err)
	require.Equal(t, list.GetEntries()[0].GetVolume().GetVolumeId(), again.GetVolume().GetVolumeId(), "the retry finds it")
}

func TestFaultHangsUntilItIsRemovedOrTheCallerGivesUp(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	id := d.inject("ControllerPublishVolume: hang")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, codes.DeadlineExceeded, d.attachTo(ctx, v))

	ended := make(chan error, 1)
	go func() { ended <- d.attachTo(t.Context(), v) }()
	m, err := journal.ParseMatch("ControllerPublishVolume")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n := 0
		for _, e := range d.emulator.Journal().Entries(0) {
			if m.Matches(e) && e.Fault != "" {
				n++
			}
		}
		return n == 2
	}, patience, tick)
	select {
	case err := <-ended:
		require.Fail(t, "it did not hang", "%v", err)
	default:
	}
	// It holds no lock: others are served.
	_, err = d.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.id})
	require.NoError(t, err)
	require.NoError(t, d.emulator.RemoveFault(t.Context(), id))
	require.NoError(t, <-ended)
}

func TestFaultSleeps(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	d.inject("CreateVolume: sleep(80ms)")
	began := time.Now()
	d.create("v", mountCapability(""), mib)
	require.GreaterOrEqual(t, time.Since(began), 80*time.Millisecond)
}

func TestFaultStopsHalfWay(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	d.inject("CreateVolume: partial(array.volume.filled)->ok")
	create := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}}
	_, err := d.CreateVolume(t.Context(), create)
	wantCode(t, codes.Internal, err)
	list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	require.Empty(t, list.GetEntries(), "what was done is undone")
	_, err = d.CreateVolume(t.Context(), create)
	require.NoError(t, err)
}

func TestFaultCrashesAtAKillPoint(t *testing.T) {
	t.Parallel()
	var at []string
	d := inMemory(t, func(c *emulator.Config) { c.Crash = func(step string) { at = append(at, step) } })
	d.inject("CreateVolume: crash(array.volume.creating)")
	d.create("v", mountCapability(""), mib)
	require.Equal(t, []string{"array.volume.creating"}, at)
}

func TestSnapshotTakesItsTime(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	d.inject("CreateSnapshot: polls(2)")
	cut, err := d.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
	require.NoError(t, err)
	require.False(t, cut.GetSnapshot().GetReadyToUse())
	id := cut.GetSnapshot().GetSnapshotId()
	_, err = d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "early", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}},
	})
	wantCode(t, codes.Aborted, err)
	got, err := d.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: id})
	require.NoError(t, err)
	require.False(t, got.GetSnapshot().GetReadyToUse())
	list, err := d.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	require.NoError(t, err)
	require.True(t, list.GetEntries()[0].GetSnapshot().GetReadyToUse())
}

func TestAttachTakesItsTime(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	d.inject("ControllerPublishVolume: polls(2)")
	for range 2 {
		wantCode(t, codes.Aborted, d.attachTo(t.Context(), v))
	}
	require.NoError(t, d.attachTo(t.Context(), v))
}

func TestFaultsThatCannotBe(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	d.create("v", mountCapability(""), mib)
	_, err := d.emulator.InjectText(t.Context(), "CreateVolume: explode")
	require.ErrorIs(t, err, backends.ErrInvalid)
	_, err = d.emulator.InjectText(t.Context(), "Volume{name=v}: eio")
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, "keeps no bytes")
	require.Empty(t, d.emulator.Faults(), "what cannot be is not kept")
	require.ErrorIs(t, d.emulator.RemoveFault(t.Context(), "fault-9"), backends.ErrNotFound)
}

func TestFaultOfHealth(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	d.inject(`Volume{name=v}: health(DEGRADED,"SlowDisk")`)
	require.Equal(t, "SlowDisk", d.health(v.id)[0].GetReason())
	w := d.create("w", mountCapability(""), mib)
	require.Empty(t, d.health(w.id))
	d.inject(`Volume{name=late}: health(DATA_LOSS,"Burnt")`)
	late := d.create("late", mountCapability(""), mib)
	require.Len(t, d.health(late.id), 1, "also of a volume that comes later")
	d.inject("Volume: heal")
	require.Empty(t, d.health(v.id))
	require.Empty(t, d.health(late.id))
	require.Empty(t, d.emulator.Faults())
}

func TestCheckerOfTheCaller(t *testing.T) {
	t.Parallel()
	stageFirst := func(d *driver) error {
		v := d.create("v", mountCapability(""), mib)
		_, err := d.NodeStageVolume(t.Context(), v.stageRequest())
		return err
	}
	lenient := inMemory(t, func(c *emulator.Config) { c.CheckCaller = true })
	require.Error(t, stageFirst(lenient))
	found := lenient.emulator.Findings()
	require.Len(t, found, 1)
	require.EqualValues(t, "stage-before-attach", found[0].Rule)
	entries := lenient.emulator.Journal().Entries(0)
	require.Len(t, entries[len(entries)-1].Findings, 1)

	strict := inMemory(t, func(c *emulator.Config) { c.CheckCaller, c.Strict = true, true })
	err := stageFirst(strict)
	wantCode(t, codes.FailedPrecondition, err)
	require.ErrorContains(t, err, "stage-before-attach")

	off := inMemory(t)
	require.Error(t, stageFirst(off))
	require.Empty(t, off.emulator.Findings())
}

// A volume that was published when its process ended keeps no fault.
func TestFaultsEndWithTheEmulator(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := emulator.Config{Backend: memoryCase().open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}}
	d := start(t, c)
	v := d.create("v", mountCapability(""), mib)
	d.inject(`Volume{name=v}: health(DEGRADED,"SlowDisk")`)
	d.inject("DeleteVolume: return(INTERNAL)")
	d.stop()
	c.Backend = memoryCase().open(t, dir)
	d = start(t, c)
	require.Empty(t, d.health(v.id))
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(dir, "volumes"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestClassBreaksItsVolumes(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := emulator.Config{Backend: memoryCase().open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}}
	d := start(t, c)
	broken := func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = nil
		r.Parameters = map[string]string{"fault": "CreateVolume: return(UNAVAILABLE)->ok\nControllerPublishVolume: 1*return(ABORTED)\nVolume: health(DEGRADED,\"Old\")"}
	}
	request := &csi.CreateVolumeRequest{Name: "broken", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}}
	broken(request)
	_, err := d.CreateVolume(t.Context(), request)
	wantCode(t, codes.Unavailable, err)
	whole := d.create("whole", mountCapability(""), mib)
	v := d.create("broken", mountCapability(""), 0, broken)
	require.Len(t, d.health(v.id), 1)
	require.Empty(t, d.health(whole.id))
	require.NoError(t, d.attachTo(t.Context(), whole))
	wantCode(t, codes.Aborted, d.attachTo(t.Context(), v))
	require.NoError(t, d.attachTo(t.Context(), v))
	_, err = d.CreateVolume(t.Context(), request)
	require.NoError(t, err, "the retry finds the volume")
	v.detach()

	d.stop()
	c.Backend = memoryCase().open(t, dir)
	d = start(t, c)
	v.d = d
	require.Len(t, d.health(v.id), 1, "the class is remembered")
	wantCode(t, codes.Aborted, d.attachTo(t.Context(), v))
	v.delete()
	require.Empty(t, d.emulator.Faults(), "the faults go with the volume")

	request.Name, request.Parameters = "bad", map[string]string{"fault": "CreateVolume: explode"}
	_, err = d.CreateVolume(t.Context(), request)
	wantCode(t, codes.InvalidArgument, err)
}

// The members of a group that is half deleted are gone for callers.
func TestMembersGoWithTheirGroup(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	a, b := d.create("a", mountCapability(""), mib), d.create("b", mountCapability(""), mib)
	g := d.group("g", a, b)
	d.inject("DeleteVolumeGroupSnapshot: partial(array.snapshot.forgotten)->ok")
	remove := &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: snapshotIDs(g)}
	_, err := d.DeleteVolumeGroupSnapshot(t.Context(), remove)
	wantCode(t, codes.Internal, err)
	require.Empty(t, d.snapshots())
	for _, id := range snapshotIDs(g) {
		_, err := d.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: id})
		wantCode(t, codes.NotFound, err)
	}
	_, err = d.DeleteVolumeGroupSnapshot(t.Context(), remove)
	require.NoError(t, err)
}

// Once a snapshot is ready it stays ready.
func TestReadySnapshotStaysReady(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	d.inject("CreateSnapshot: polls(2)")
	cut := func() bool {
		r, err := d.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
		require.NoError(t, err)
		return r.GetSnapshot().GetReadyToUse()
	}
	require.False(t, cut())
	for range 3 {
		d.snapshots()
	}
	for range 3 {
		require.True(t, cut())
	}
}

// Healing one volume leaves the others as they are.
func TestHealIsForItsVolumeAlone(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v, w := d.create("v", mountCapability(""), mib), d.create("w", mountCapability(""), mib)
	d.inject(`Volume: health(DEGRADED,"Slow")`)
	d.inject("Volume{name=v}: heal")
	require.Empty(t, d.health(v.id))
	require.Len(t, d.health(w.id), 1)
}
