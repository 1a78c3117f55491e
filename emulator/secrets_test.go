package emulator_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
)

const theSecret = "correct horse battery staple"

func rightSecrets() map[string]string { return map[string]string{"token": theSecret} }

// demanding is a class that wants the secret for every call that can carry it.
func demanding() map[string]string {
	sum := sha256.Sum256([]byte(theSecret))
	return map[string]string{
		"authSHA256": hex.EncodeToString(sum[:]),
		"authFor": "CreateVolume,DeleteVolume,ControllerPublishVolume,ControllerUnpublishVolume,ValidateVolumeCapabilities," +
			"ControllerExpandVolume,ControllerModifyVolume,ControllerGetVolumeHealth,CreateSnapshot,DeleteSnapshot,GetSnapshot," +
			"CreateVolumeGroupSnapshot,GetVolumeGroupSnapshot,DeleteVolumeGroupSnapshot,NodeStageVolume,NodePublishVolume,NodeExpandVolume",
	}
}

// lockedBuffer may be written to by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// Every call of a demanding class is refused without secrets and with wrong
// ones, served with the right ones, and the secret is nowhere afterwards.
func TestClassDemandsSecrets(t *testing.T) {
	t.Parallel()
	log, dir := &lockedBuffer{}, shortDir(t)
	d := inMemory(t, func(c *emulator.Config) {
		c.StateDir = dir
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	var id, snapshot string
	var group *csi.VolumeGroupSnapshot
	var v *volume
	calls := []struct {
		name string
		call func(secrets map[string]string) error
	}{
		{"CreateVolume", func(s map[string]string) error {
			r, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
				Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, Parameters: demanding(), Secrets: s,
			})
			if err == nil {
				id = r.GetVolume().GetVolumeId()
				v = d.place(r.GetVolume(), "v", mountCapability(""))
			}
			return err
		}},
		{"ValidateVolumeCapabilities", func(s map[string]string) error {
			_, err := d.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, Secrets: s})
			return err
		}},
		{"ControllerGetVolumeHealth", func(s map[string]string) error {
			_, err := d.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id, Secrets: s})
			return err
		}},
		{"ControllerModifyVolume", func(s map[string]string) error {
			_, err := d.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"health": ""}, Secrets: s})
			return err
		}},
		{"ControllerExpandVolume", func(s map[string]string) error {
			_, err := d.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * mib}, Secrets: s})
			return err
		}},
		{"CreateSnapshot", func(s map[string]string) error {
			r, err := d.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Secrets: s})
			snapshot = r.GetSnapshot().GetSnapshotId()
			return err
		}},
		{"GetSnapshot", func(s map[string]string) error {
			_, err := d.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: snapshot, Secrets: s})
			return err
		}},
		{"DeleteSnapshot", func(s map[string]string) error {
			_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot, Secrets: s})
			return err
		}},
		{"CreateVolumeGroupSnapshot", func(s map[string]string) error {
			r, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{id}, Secrets: s})
			group = r.GetGroupSnapshot()
			return err
		}},
		{"GetVolumeGroupSnapshot", func(s map[string]string) error {
			_, err := d.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: snapshotIDs(group), Secrets: s})
			return err
		}},
		{"DeleteVolumeGroupSnapshot", func(s map[string]string) error {
			_, err := d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: snapshotIDs(group), Secrets: s})
			return err
		}},
		{"ControllerPublishVolume", func(s map[string]string) error {
			r, err := d.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: v.node, VolumeCapability: v.capability, Secrets: s})
			v.publishContext = r.GetPublishContext()
			return err
		}},
		{"NodeStageVolume", func(s map[string]string) error {
			r := v.stageRequest()
			r.Secrets = s
			_, err := d.NodeStageVolume(t.Context(), r)
			return err
		}},
		{"NodePublishVolume", func(s map[string]string) error {
			r := v.publishRequest()
			r.Secrets = s
			_, err := d.NodePublishVolume(t.Context(), r)
			return err
		}},
		{"NodeExpandVolume", func(s map[string]string) error {
			_, err := d.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: v.target, Secrets: s})
			if err == nil {
				v.unpublish()
				v.unstage()
			}
			return err
		}},
		{"ControllerUnpublishVolume", func(s map[string]string) error {
			_, err := d.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: v.node, Secrets: s})
			return err
		}},
		{"DeleteVolume", func(s map[string]string) error {
			_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id, Secrets: s})
			return err
		}},
	}
	for _, c := range calls {
		for what, wrong := range map[string]map[string]string{
			"no": nil, "wrong": {"token": "wrong"}, "an empty": {"token": ""}, "another key's": {"password": theSecret},
		} {
			err := c.call(wrong)
			require.Equal(t, codes.Unauthenticated, codeOf(err), "%s with %s secret: %v", c.name, what, err)
			require.NotContains(t, err.Error(), theSecret)
		}
		require.NoError(t, c.call(rightSecrets()), c.name)
	}
	d.stop()
	require.NotContains(t, log.String(), theSecret, "in the log")
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), theSecret, path)
		return err
	}))
}

func TestDemandForSecretsThatMakesNoSense(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	for name, parameters := range map[string]map[string]string{
		"an RPC without a volume": {"authFor": "ListVolumes"},
		"an unknown RPC":          {"authFor": "Frobnicate"},
		"a digest that is none":   {"authFor": "CreateVolume", "authSHA256": "abc"},
		"a digest for no RPC":     {"authSHA256": "abc"},
	} {
		_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, Parameters: parameters, Secrets: rightSecrets(),
		})
		require.Equal(t, codes.InvalidArgument, codeOf(err), "%s: %v", name, err)
	}
}
