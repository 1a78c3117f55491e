package emulator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/node"
)

func (d *driver) health(volumeID string) []*csi.VolumeHealth_VolumeHealthEntry {
	d.t.Helper()
	resp, err := d.ControllerGetVolumeHealth(d.t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: volumeID})
	require.NoError(d.t, err)
	require.Equal(d.t, volumeID, resp.GetVolumeHealth().GetVolumeId())
	return resp.GetVolumeHealth().GetHealthStatuses()
}

func (d *driver) nodeHealth(volumeID string) []*csi.VolumeHealth_VolumeHealthEntry {
	d.t.Helper()
	resp, err := d.NodeGetVolumeHealth(d.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volumeID})
	require.NoError(d.t, err)
	return resp.GetVolumeHealth().GetHealthStatuses()
}

func TestHealthFollowsItsScript(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	a, b := d.create("a", mountCapability(""), mib), d.create("b", mountCapability(""), mib)
	require.Empty(t, d.health(a.id))

	slow := backends.Condition{Status: backends.Degraded, Reason: "SlowDisk", Message: "reads take seconds"}
	lost := backends.Condition{Status: backends.DataLoss, Reason: "DiskFailure"}
	require.NoError(t, d.emulator.SetVolumeHealth(t.Context(), a.id, slow, lost))
	got := d.health(a.id)
	require.Len(t, got, 2)
	require.Equal(t, csi.VolumeHealthErrorType_DEGRADED, got[0].GetStatus())
	require.Equal(t, "SlowDisk", got[0].GetReason())
	require.Equal(t, "reads take seconds", got[0].GetMessage())
	require.Equal(t, csi.VolumeHealthErrorType_DATA_LOSS, got[1].GetStatus())
	require.Empty(t, d.health(b.id))

	list, err := d.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 1, "healthy volumes are left out")
	require.Equal(t, a.id, list.GetEntries()[0].GetVolumeId())

	require.NoError(t, d.emulator.SetVolumeHealth(t.Context(), a.id))
	require.Empty(t, d.health(a.id), "what is over is not reported")

	for name, wrong := range map[string][]backends.Condition{
		"unknown status":            {{Status: "SICK", Reason: "X"}},
		"a reason of several words": {{Status: backends.Degraded, Reason: "slow disk"}},
		"told twice":                {slow, slow},
		"no text":                   {{Status: backends.Degraded, Reason: "Slow", Message: "\xff"}},
		"past the limit of strings": {{Status: backends.Degraded, Reason: "Slow", Message: strings.Repeat("x", 129)}},
	} {
		require.ErrorIs(t, d.emulator.SetVolumeHealth(t.Context(), a.id, wrong...), backends.ErrInvalid, name)
	}
	require.ErrorIs(t, d.emulator.SetVolumeHealth(t.Context(), "vol-none", slow), backends.ErrNotFound)
	_, err = d.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "vol-none"})
	wantCode(t, codes.NotFound, err)
}

func TestListVolumeHealthPages(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	var sick []string
	for i := range 7 {
		v := d.create(string(rune('a'+i)), mountCapability(""), mib)
		if i%2 == 0 {
			require.NoError(t, d.emulator.SetVolumeHealth(t.Context(), v.id, backends.Condition{Status: backends.Degraded, Reason: "Slow"}))
			sick = append(sick, v.id)
		}
	}
	var got []string
	token := ""
	for pages := 1; ; pages++ {
		page, err := d.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{MaxEntries: 2, StartingToken: token})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.GetEntries()), 2)
		for _, e := range page.GetEntries() {
			got = append(got, e.GetVolumeId())
		}
		if token = page.GetNextToken(); token == "" {
			require.Equal(t, 2, pages)
			break
		}
	}
	require.Equal(t, sick, got)
	_, err := d.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{StartingToken: "none"})
	wantCode(t, codes.Aborted, err)
	_, err = d.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{MaxEntries: -1})
	wantCode(t, codes.InvalidArgument, err)
}

func TestHealthOnANode(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("a", mountCapability(""), mib)
	require.Empty(t, d.nodeHealth(v.id), "a volume that is not staged is not sick")
	require.NoError(t, d.emulator.SetNodeVolumeHealth("node-1", v.id, backends.Condition{Status: backends.Inaccessible, Reason: "PathLost"}))
	require.Equal(t, csi.VolumeHealthErrorType_INACCESSIBLE, d.nodeHealth(v.id)[0].GetStatus())
	require.Empty(t, d.health(v.id), "other nodes can reach it")
	require.ErrorIs(t, d.emulator.SetNodeVolumeHealth("node-9", v.id), backends.ErrNotFound)
	_, err := d.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "vol-none"})
	wantCode(t, codes.NotFound, err)

	storage, err := d.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	require.NoError(t, err)
	require.Empty(t, storage.GetBackendHealth())
	require.NoError(t, d.emulator.SetStorageHealth("node-1", backends.Condition{Status: node.StorageUnreachable, Reason: "LinkDown"}))
	storage, err = d.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	require.NoError(t, err)
	require.Equal(t, csi.StorageHealthErrorType_STORAGE_UNREACHABLE, storage.GetBackendHealth()[0].GetStatus())
	require.Equal(t, "LinkDown", storage.GetBackendHealth()[0].GetReason())
	require.ErrorIs(t, d.emulator.SetStorageHealth("node-1", backends.Condition{Status: backends.Degraded, Reason: "X"}), backends.ErrInvalid)
}

// An image that somebody removed is no healthy volume.
func TestBackendSeesLostBytes(t *testing.T) {
	t.Parallel()
	for _, c := range backendCases() {
		if c.name != "loop" {
			continue
		}
		dir := shortDir(t)
		d := start(t, emulator.Config{Backend: c.open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
		v := d.create("a", blockCapability(), mib)
		require.Empty(t, d.health(v.id))
		images, err := filepath.Glob(filepath.Join(dir, "volumes", v.id, "image"))
		require.NoError(t, err)
		require.Len(t, images, 1)
		require.NoError(t, os.Remove(images[0]))
		got := d.health(v.id)
		require.Len(t, got, 1)
		require.Equal(t, csi.VolumeHealthErrorType_DATA_LOSS, got[0].GetStatus())
		v.delete()
	}
}

// condition reads the VolumeCondition that CSI had until 1.12 from a message of
// 1.13.
func condition(t *testing.T, m proto.Message) (abnormal bool, message string, found bool) {
	t.Helper()
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		require.Positive(t, n)
		require.Equal(t, protowire.Number(2), number)
		require.Equal(t, protowire.BytesType, kind)
		body, m := protowire.ConsumeBytes(b[n:])
		require.Positive(t, m)
		b, found = b[n+m:], true
		for len(body) > 0 {
			number, _, n := protowire.ConsumeTag(body)
			body = body[n:]
			if number == 1 {
				v, n := protowire.ConsumeVarint(body)
				abnormal, body = v != 0, body[n:]
				continue
			}
			text, n := protowire.ConsumeString(body)
			message, body = text, body[n:]
		}
	}
	return abnormal, message, found
}

func TestOlderOrchestratorsReadVolumeCondition(t *testing.T) {
	t.Parallel()
	d := inMemory(t, func(c *emulator.Config) { c.Profile.EnableVolumeCondition() })
	v := d.create("a", mountCapability(""), mib)
	v.up()
	replies := func() []proto.Message {
		list, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		require.NoError(t, err)
		get, err := d.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.id})
		require.NoError(t, err)
		stats, err := d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
		require.NoError(t, err)
		return []proto.Message{list.GetEntries()[0].GetStatus(), get.GetStatus(), stats}
	}
	for _, m := range replies() {
		abnormal, message, found := condition(t, m)
		require.True(t, found)
		require.False(t, abnormal)
		require.NotEmpty(t, message)
	}
	sick := backends.Condition{Status: backends.Degraded, Reason: "SlowDisk", Message: "slow"}
	require.NoError(t, d.emulator.SetVolumeHealth(t.Context(), v.id, sick))
	require.NoError(t, d.emulator.SetNodeVolumeHealth("node-1", v.id, sick))
	for _, m := range replies() {
		abnormal, message, found := condition(t, m)
		require.True(t, found)
		require.True(t, abnormal)
		require.Equal(t, "DEGRADED (SlowDisk): slow", message)
	}
	caps, err := d.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	require.NoError(t, err)
	last := caps.GetCapabilities()[len(caps.GetCapabilities())-1]
	require.EqualValues(t, 4, last.GetRpc().GetType())
	v.down()

	plain := inMemory(t)
	w := plain.create("a", mountCapability(""), mib)
	list, err := plain.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	_, _, found := condition(t, list.GetEntries()[0].GetStatus())
	require.False(t, found, "it is off unless asked for")
	w.delete()
}
