//go:build linux

package crash_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
)

// life is what one scenario does between two crashes, with all that it makes.
type life struct {
	t          *testing.T
	r          *rig
	name       string
	capability *csi.VolumeCapability
	// told is where the life says what it was told; nil means nobody asks.
	told      *model
	volumes   []*volume
	snapshots []snapshot
	groups    []string
	// v is the volume that the scenario is about, other a second one.
	v, other *volume
}

type snapshot struct{ name, id string }

// volume is a volume with its places in the orchestrator's directory.
type volume struct {
	l              *life
	name, id       string
	capability     *csi.VolumeCapability
	readOnly       bool
	publishContext map[string]string
	staging        string
	target         string
	inline         bool
	// sum is the checksum of what was written last, "" if nothing was.
	sum string
}

// attaches and stages say whether the driver has ControllerPublishVolume and
// NodeStageVolume.
func (r *rig) attaches() bool {
	return r.backend != "tmpfs" && !slices.Contains(r.disabled, "PUBLISH_UNPUBLISH_VOLUME")
}

func (r *rig) stages() bool { return !slices.Contains(r.disabled, "STAGE_UNSTAGE_VOLUME") }

// keepsBytes says whether the backend has any.
func (r *rig) keepsBytes() bool { return r.backend != "memory" }

// place makes a place for a volume that may not exist yet.
func (l *life) place(suffix string, capability *csi.VolumeCapability) *volume {
	l.t.Helper()
	name := l.name + suffix
	v := &volume{
		l: l, name: name, capability: capability,
		staging: filepath.Join(l.r.pods, name, "staging"), target: filepath.Join(l.r.pods, name, "pod", "volume"),
	}
	require.NoError(l.t, os.MkdirAll(v.staging, 0o700))
	require.NoError(l.t, os.MkdirAll(filepath.Dir(v.target), 0o700))
	l.volumes = append(l.volumes, v)
	return v
}

// sizes are the smallest that every file system of a backend takes.
func sizeOf(c *csi.VolumeCapability) int64 {
	if c.GetMount().GetFsType() == "xfs" {
		return 320 * mib
	}
	return 16 * mib
}

func (v *volume) createRequest(edit ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	req := &csi.CreateVolumeRequest{
		Name: v.name, VolumeCapabilities: []*csi.VolumeCapability{v.capability},
		CapacityRange: &csi.CapacityRange{RequiredBytes: sizeOf(v.capability)},
	}
	for _, f := range edit {
		f(req)
	}
	return req
}

func (v *volume) create(edit ...func(*csi.CreateVolumeRequest)) {
	v.l.t.Helper()
	v.l.told.volume(v.name, maybe)
	resp, err := v.l.r.CreateVolume(v.l.t.Context(), v.createRequest(edit...))
	require.NoError(v.l.t, err)
	v.id = resp.GetVolume().GetVolumeId()
	v.l.told.volume(v.name, there)
}

func (v *volume) attachRequest() *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: nodeName, VolumeCapability: v.capability, Readonly: v.readOnly}
}

func (v *volume) attach() {
	v.l.t.Helper()
	if !v.l.r.attaches() {
		return
	}
	resp, err := v.l.r.ControllerPublishVolume(v.l.t.Context(), v.attachRequest())
	require.NoError(v.l.t, err)
	v.publishContext = resp.GetPublishContext()
}

func (v *volume) stageRequest() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging, VolumeCapability: v.capability,
	}
}

func (v *volume) stage() {
	v.l.t.Helper()
	if !v.l.r.stages() {
		return
	}
	_, err := v.l.r.NodeStageVolume(v.l.t.Context(), v.stageRequest())
	require.NoError(v.l.t, err)
}

func (v *volume) publishRequest() *csi.NodePublishVolumeRequest {
	req := &csi.NodePublishVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging, TargetPath: v.target,
		VolumeCapability: v.capability, Readonly: v.readOnly,
	}
	if v.inline {
		req.StagingTargetPath, req.VolumeContext = "", map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "16Mi"}
	}
	return req
}

func (v *volume) publish() {
	v.l.t.Helper()
	_, err := v.l.r.NodePublishVolume(v.l.t.Context(), v.publishRequest())
	require.NoError(v.l.t, err)
}

func (v *volume) up() { v.l.t.Helper(); v.attach(); v.stage(); v.publish() }

func (v *volume) unpublishRequest() *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target}
}

func (v *volume) unstageRequest() *csi.NodeUnstageVolumeRequest {
	return &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging}
}

func (v *volume) detachRequest() *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: nodeName}
}

func (v *volume) unpublish() {
	v.l.t.Helper()
	_, err := v.l.r.NodeUnpublishVolume(v.l.t.Context(), v.unpublishRequest())
	require.NoError(v.l.t, err)
	_, err = os.Lstat(v.target)
	require.ErrorIs(v.l.t, err, fs.ErrNotExist)
}

// down undoes whatever was done of up: each call is right when there is nothing
// to do.
func (v *volume) down() {
	v.l.t.Helper()
	v.unpublish()
	if v.inline {
		return
	}
	ctx := v.l.t.Context()
	if v.l.r.stages() {
		_, err := v.l.r.NodeUnstageVolume(ctx, v.unstageRequest())
		require.NoError(v.l.t, err)
	}
	if v.l.r.attaches() {
		_, err := v.l.r.ControllerUnpublishVolume(ctx, v.detachRequest())
		require.NoError(v.l.t, err)
	}
}

func (v *volume) delete() {
	v.l.t.Helper()
	v.l.told.volume(v.name, maybe)
	_, err := v.l.r.DeleteVolume(v.l.t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	require.NoError(v.l.t, err)
	v.l.told.volumeGone(v.name)
}

// snapshot cuts a snapshot and returns its id.
func (l *life) snapshot(v *volume, suffix string) string {
	l.t.Helper()
	req := l.snapshotRequest(v, suffix)
	l.told.snapshot(req.GetName(), maybe)
	resp, err := l.r.CreateSnapshot(l.t.Context(), req)
	require.NoError(l.t, err)
	l.told.snapshot(req.GetName(), there)
	id := resp.GetSnapshot().GetSnapshotId()
	l.snapshots = append(l.snapshots, snapshot{req.GetName(), id})
	return id
}

func (l *life) snapshotRequest(v *volume, suffix string) *csi.CreateSnapshotRequest {
	return &csi.CreateSnapshotRequest{Name: l.name + suffix, SourceVolumeId: v.id}
}

// end takes away all that the life made.
func (l *life) end() {
	l.t.Helper()
	for _, v := range slices.Backward(l.volumes) {
		if v.id != "" {
			v.down()
		}
		if v.id != "" && !v.inline {
			v.delete()
		}
		require.NoError(l.t, os.Remove(v.staging))
		require.NoError(l.t, os.Remove(filepath.Dir(v.target)))
	}
	for _, id := range l.groups {
		_, err := l.r.DeleteVolumeGroupSnapshot(l.t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id})
		require.NoError(l.t, err)
	}
	for _, s := range l.snapshots {
		l.told.snapshot(s.name, maybe)
		_, err := l.r.DeleteSnapshot(l.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.id})
		require.NoError(l.t, err)
		l.told.snapshotGone(s.name)
	}
	l.volumes, l.snapshots, l.groups = nil, nil, nil
}

func mountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func blockCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func fromSnapshot(id string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
		}}
	}
}

func fromVolume(id string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
		}}
	}
}

func ofSize(bytes int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: bytes} }
}
