package emulator_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
)

// inline is the NodePublishVolume of a pod with an inline volume.
func inline(target, size string) *csi.NodePublishVolumeRequest {
	r := &csi.NodePublishVolumeRequest{
		VolumeId: "csi-0123456789abcdef", TargetPath: target, VolumeCapability: mountCapability(""),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	}
	if size != "" {
		r.VolumeContext["size"] = size
	}
	return r
}

func TestInlineVolumesLiveAsLongAsTheirPublication(t *testing.T) {
	t.Parallel()
	for _, b := range backendCases() {
		if b.name == "loop" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			state := shortDir(t)
			d := start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}})
			target := filepath.Join(d.dir, "volume")
			r := inline(target, "16Mi")
			for range 2 {
				_, err := d.NodePublishVolume(t.Context(), r)
				require.NoError(t, err)
			}
			require.NoError(t, os.WriteFile(filepath.Join(target, "data"), []byte("x"), 0o600))
			stats, err := d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: r.GetVolumeId(), VolumePath: target})
			require.NoError(t, err)
			require.EqualValues(t, 16*mib, stats.GetUsage()[0].GetTotal())
			for range 2 {
				_, err = d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: target})
				require.NoError(t, err)
			}
			require.NoDirExists(t, target)
			_, err = d.NodePublishVolume(t.Context(), r)
			require.NoError(t, err)
			require.NoFileExists(t, filepath.Join(target, "data"), "the next one is another volume")
			_, err = d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: target})
			require.NoError(t, err)
			stages, err := filepath.Glob(filepath.Join(state, "node", "*", "stage", "*"))
			require.NoError(t, err)
			require.Empty(t, stages)
		})
	}
}

func TestInlineVolumesAreRefused(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	_, err := d.NodePublishVolume(t.Context(), inline(filepath.Join(d.dir, "v"), "much"))
	wantCode(t, codes.InvalidArgument, err)
	loop := backendCases()[0]
	if loop.name != "loop" {
		return
	}
	state := shortDir(t)
	d = start(t, emulator.Config{Backend: loop.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}})
	_, err = d.NodePublishVolume(t.Context(), inline(filepath.Join(d.dir, "v"), ""))
	wantCode(t, codes.InvalidArgument, err)
	require.ErrorContains(t, err, "use a claim")
}

// TestDriverWithoutStaging publishes volumes that nobody staged.
func TestDriverWithoutStaging(t *testing.T) {
	t.Parallel()
	for _, b := range backendCases() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			state, profile := shortDir(t), emulator.DefaultProfile(b.name)
			require.True(t, profile.Disable("STAGE_UNSTAGE_VOLUME"))
			d := start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Profile: profile, Nodes: []emulator.Node{{Name: "node-1"}}})
			v := d.create("v", withMode(mountCapability(""), csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER), 16*mib)
			v.attach()
			v.staging = ""
			v.publish()
			second := *v
			second.target += "-2"
			second.publish()
			if b.data {
				sum := v.write(mib)
				require.Equal(t, sum, second.read(mib))
			}
			v.unpublish()
			second.unpublish()
			stages, err := filepath.Glob(filepath.Join(state, "node", "*", "stage", "*"))
			require.NoError(t, err)
			require.Empty(t, stages)
			v.detach()
			v.delete()
		})
	}
}
