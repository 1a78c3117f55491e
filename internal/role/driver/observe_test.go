package driver_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/role/driver"
)

// counts are the calls in csi_sidecar_operations_seconds: driver, method, code.
func counts(t *testing.T, registry *prometheus.Registry) map[[3]string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[[3]string]uint64{}
	for _, family := range families {
		require.Equal(t, "csi_sidecar_operations_seconds", family.GetName())
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			require.Len(t, labels, 4)
			require.Empty(t, labels["migrated"], "nothing is said of a driver that replaces no plugin")
			require.Len(t, m.GetHistogram().GetBucket(), 13, "the buckets of csi-lib-utils")
			found[[3]string{labels["driver_name"], labels["method_name"], labels["grpc_status_code"]}] = m.GetHistogram().GetSampleCount()
		}
	}
	return found
}

func TestCallsAreCountedInTheMetricOfTheField(t *testing.T) {
	t.Parallel()
	double := csitest.New(t, csitest.MinBackoff(-1))
	registry := prometheus.NewRegistry()
	d, err := driver.Over(double.Conn(), driver.Options{Metrics: registry})
	require.NoError(t, err)
	require.NoError(t, d.Await(t.Context(), nil))
	_, err = d.Identity(t.Context())
	require.NoError(t, err)
	_, err = csi.NewControllerClient(d.Conn()).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	stream, err := csi.NewSnapshotMetadataClient(d.Conn()).GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: "none"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.False(t, err == nil || errors.Is(err, io.EOF))
	require.Equal(t, map[[3]string]uint64{
		{"unknown-driver", "/csi.v1.Identity/Probe", "OK"}:                                                1,
		{"unknown-driver", "/csi.v1.Identity/GetPluginInfo", "OK"}:                                        1,
		{"memory.csiemu.dev", "/csi.v1.Identity/GetPluginCapabilities", "OK"}:                             1,
		{"memory.csiemu.dev", "/csi.v1.Controller/DeleteVolume", "InvalidArgument"}:                       1,
		{"memory.csiemu.dev", "/csi.v1.SnapshotMetadata/GetMetadataAllocated", status.Code(err).String()}: 1,
	}, counts(t, registry))

	other, err := driver.Over(double.Conn(), driver.Options{Metrics: registry})
	require.NoError(t, err, "drivers share a registry")
	require.NoError(t, other.Await(t.Context(), nil))
	require.Equal(t, uint64(2), counts(t, registry)[[3]string{"unknown-driver", "/csi.v1.Identity/Probe", "OK"}])
}

func TestCallsAreLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := driver.Over(csitest.New(t).Conn(), driver.Options{Log: log})
	require.NoError(t, err)
	_, err = csi.NewControllerClient(d.Conn()).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{
		VolumeId: "vol-1", Secrets: map[string]string{"user": "hunter2hunter2"},
	})
	require.NoError(t, err)
	require.Contains(t, out.String(), "DeleteVolume")
	require.Contains(t, out.String(), "vol-1")
	require.Contains(t, out.String(), "stripped")
	require.NotContains(t, out.String(), "hunter2")
}
