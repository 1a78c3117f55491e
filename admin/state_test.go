package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

func TestStateIsShown(t *testing.T) {
	t.Parallel()
	d := start(t)
	ctx := t.Context()
	for _, path := range []string{"volumes", "snapshots", "attachments", "mounts", "findings"} {
		_, text := d.do(http.MethodGet, "/v1/"+path, "")
		require.Equal(t, "[]\n", text, path)
	}
	id := d.create("a", func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"pool": "fast"} })
	d.up(id)
	cut, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id})
	require.NoError(t, err)

	var volumes []emulator.Volume
	require.NoError(t, d.client.Get(ctx, "/v1/volumes", &volumes))
	require.Len(t, volumes, 1)
	require.Equal(t, "fast", volumes[0].Pool)
	require.Equal(t, []string{"node-1"}, volumes[0].Nodes)
	for _, of := range []string{id, "a"} {
		var v emulator.Volume
		require.NoError(t, d.client.Get(ctx, "/v1/volumes/"+of, &v))
		require.Equal(t, volumes[0], v)
	}
	var snapshots []emulator.Snapshot
	require.NoError(t, d.client.Get(ctx, "/v1/snapshots", &snapshots))
	require.Len(t, snapshots, 1)
	require.Equal(t, cut.GetSnapshot().GetSnapshotId(), snapshots[0].ID)
	var attachments []emulator.Attachment
	require.NoError(t, d.client.Get(ctx, "/v1/attachments", &attachments))
	require.Equal(t, []emulator.Attachment{{Volume: id, Node: "node-1", Access: "SINGLE_NODE_WRITER"}}, attachments)
	var mounts []emulator.Mount
	require.NoError(t, d.client.Get(ctx, "/v1/mounts", &mounts))
	require.Len(t, mounts, 2)
	require.True(t, mounts[0].Staged)
	var nodes []emulator.NodeView
	require.NoError(t, d.client.Get(ctx, "/v1/nodes", &nodes))
	require.Len(t, nodes, 2)
	require.EqualValues(t, 1, nodes[0].Attached)

	_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	require.Error(t, err)
	var findings []admin.Finding
	require.NoError(t, d.client.Get(ctx, "/v1/findings", &findings))
	require.NotEmpty(t, findings)
	require.EqualValues(t, "delete-while-attached", findings[0].Rule)
	require.Equal(t, "DeleteVolume", findings[0].Call.Method)
	require.NotEmpty(t, findings[0].Clause)
}

func TestHealthIsSet(t *testing.T) {
	t.Parallel()
	d := start(t)
	ctx := t.Context()
	id := d.create("a")
	slow := []backends.Condition{{Status: backends.Degraded, Reason: "SlowDisk", Message: "reads take long"}}
	require.NoError(t, d.client.Put(ctx, "/v1/volumes/a/health", slow))
	var v emulator.Volume
	require.NoError(t, d.client.Get(ctx, "/v1/volumes/"+id, &v))
	require.Equal(t, slow, v.Health)
	told, err := d.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	require.NoError(t, err)
	require.Equal(t, "SlowDisk", told.GetVolumeHealth().GetHealthStatuses()[0].GetReason())
	require.NoError(t, d.client.Put(ctx, "/v1/volumes/"+id+"/health", []backends.Condition{}))
	told, err = d.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	require.NoError(t, err)
	require.Empty(t, told.GetVolumeHealth().GetHealthStatuses())

	require.ErrorIs(t, d.client.Put(ctx, "/v1/volumes/b/health", slow), backends.ErrNotFound)
	require.ErrorIs(t, d.client.Put(ctx, "/v1/volumes/a/health?node=nowhere", slow), backends.ErrNotFound)
	slow[0].Reason = "two words"
	require.ErrorIs(t, d.client.Put(ctx, "/v1/volumes/a/health", slow), backends.ErrInvalid)
	require.Equal(t, http.StatusBadRequest, status(d.do(http.MethodPut, "/v1/volumes/a/health", "{}", meant)))
}

func TestHealthOnOneNodeIsSet(t *testing.T) {
	t.Parallel()
	d := start(t)
	ctx := t.Context()
	id := d.create("a")
	d.up(id)
	slow := []backends.Condition{{Status: backends.Degraded, Reason: "SlowPath"}}
	require.NoError(t, d.client.Put(ctx, "/v1/volumes/a/health?node=node-1", slow))
	told, err := d.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
	require.NoError(t, err)
	require.Equal(t, "SlowPath", told.GetVolumeHealth().GetHealthStatuses()[0].GetReason())
}

func TestStateIsWatched(t *testing.T) {
	t.Parallel()
	d := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sizes []int
	for line, err := range d.client.Lines(ctx, "/v1/volumes?watch=1") {
		require.NoError(t, err)
		var volumes []emulator.Volume
		require.NoError(t, json.Unmarshal(line, &volumes))
		switch sizes = append(sizes, len(volumes)); len(sizes) {
		case 1:
			d.create("a")
		case 2:
			// It comes with no call.
			require.NoError(t, d.emulator.SetVolumeHealth(ctx, volumes[0].ID, backends.Condition{Status: backends.Degraded, Reason: "SlowDisk"}))
		case 3:
			require.Equal(t, "SlowDisk", volumes[0].Health[0].Reason)
			_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volumes[0].ID})
			require.NoError(t, err)
		default:
			cancel()
		}
	}
	require.Equal(t, []int{0, 1, 1, 0}, sizes)
	require.Equal(t, http.StatusBadRequest, status(d.do(http.MethodGet, "/v1/volumes?watch=perhaps", "")))
}

func TestReadinessIsTheTruth(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	d := start(t, func(_ *emulator.Config, o *admin.Options) {
		o.Ready = func(context.Context) error {
			if broken.Load() {
				return errors.New("the socket is gone")
			}
			return nil
		}
	})
	require.Equal(t, http.StatusOK, status(d.do(http.MethodGet, "/healthz", "")))
	require.Equal(t, http.StatusOK, status(d.do(http.MethodGet, "/readyz", "")))
	broken.Store(true)
	code, text := d.do(http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "the socket is gone")
	require.Equal(t, http.StatusOK, status(d.do(http.MethodGet, "/healthz", "")))
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	d := start(t)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/v1/volumes/none", 404},
		{http.MethodGet, "/v1/nothing", 404},
		{http.MethodGet, "/nothing", 404},
		{http.MethodGet, "/volumes/none", 404},
		{http.MethodGet, "/events?volume=none", 404},
		{http.MethodGet, "/static/none.css", 404},
		{http.MethodPost, "/v1/volumes", 405},
		{http.MethodPut, "/v1/faults", 405},
		{http.MethodGet, "/faults", 405},
		{http.MethodHead, "/v1/volumes", 200},
	} {
		code, _ := d.do(c.method, c.path, "", meant)
		require.Equal(t, c.want, code, "%s %s", c.method, c.path)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d := start(t)
	_, err := d.emulator.InjectText(t.Context(), "ControllerPublishVolume: return(UNAVAILABLE)->ok")
	require.NoError(t, err)
	id := d.create("a")
	_, err = d.attach(id, "node-1")
	require.Error(t, err)
	_, err = d.attach(id, "node-1")
	require.NoError(t, err)
	_, err = d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.Error(t, err)
	for _, line := range []string{
		`csi_operations_seconds_count{driver_name="memory.csiemu.dev",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1`,
		`csi_operations_seconds_count{driver_name="memory.csiemu.dev",grpc_status_code="Unavailable",method_name="/csi.v1.Controller/ControllerPublishVolume"} 1`,
		`csiemu_faults_fired_total{method_name="/csi.v1.Controller/ControllerPublishVolume"} 1`,
		`csiemu_volumes{pool="default"} 1`, `csiemu_volumes{pool="fast"} 0`,
		`csiemu_pool_bytes{pool="fast"} 1.073741824e+09`, `csiemu_pool_volume_bytes{pool="default"} 1.6777216e+07`,
		`csiemu_snapshots 0`, `csiemu_attachments{node="node-1"} 1`, `csiemu_attachments{node="node-2"} 0`,
		`csiemu_journal_dropped_total 0`, `csiemu_faults 1`, `csiemu_volumes_unhealthy 0`,
	} {
		require.Eventually(t, func() bool {
			_, text := d.do(http.MethodGet, "/metrics", "")
			return containsLine(text, line)
		}, patience, tick, line)
	}
	_, text := d.do(http.MethodGet, "/metrics", "")
	require.Regexp(t, `(?m)^csiemu_findings_total [1-9]`, text)
}
