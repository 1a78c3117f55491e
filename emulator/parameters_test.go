package emulator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator"
)

// Who mistypes a parameter reads which there are, and which was meant.
func TestErrorOfAnUnknownParameterNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	own := []string{"authFor", "authKey", "authSHA256", "fault", "pool"}
	ofBackend := map[string][]string{
		"loop": {"breakable", "directIO", "provisioning"}, "tmpfs": {"breakable"}, "memory": {"directIO", "provisioning"},
	}
	for _, c := range backendCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			d := start(t, emulator.Config{Backend: c.open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
			known := append(slices.Clone(own), ofBackend[c.name]...)
			slices.Sort(known)
			for _, key := range []string{"pol", "colour"} {
				_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
					Name: "v", VolumeCapabilities: []*csi.VolumeCapability{blockCapability()}, Parameters: map[string]string{key: "x"},
				})
				wantCode(t, codes.InvalidArgument, err)
				text := status.Convert(err).Message()
				require.Contains(t, text, "known are "+strings.Join(known, ", "))
				require.Equal(t, key == "pol", strings.Contains(text, `did you mean "pool"?`), text)
			}
			for _, key := range known {
				_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
					Name: "v", VolumeCapabilities: []*csi.VolumeCapability{blockCapability()}, Parameters: map[string]string{key: "no such value"},
				})
				require.NotContains(t, status.Convert(err).Message(), "is not known", key)
			}
		})
	}
}
