package csitest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Spec describes a volume for Publish. The zero value is a file system of 64 MiB.
type Spec struct {
	// Name is the volume's; without one it gets one of its own.
	Name string
	// SizeBytes is its size; 0 means DefaultSizeBytes.
	SizeBytes int64
	// FSType is the file system; empty means the driver's default.
	FSType string
	// Block asks for a raw block device in place of a file system.
	Block bool
	// Breakable lets the bytes of a volume of Loop suffer from every fault; it
	// costs speed.
	Breakable bool
	// Parameters are further parameters of its class.
	Parameters map[string]string
}

// DefaultSizeBytes is the size of a volume whose Spec has none: 64 MiB.
const DefaultSizeBytes = 64 << 20

// Publish makes a volume and publishes it on the first node, as an orchestrator
// does: for tests of what uses volumes. Volume.Path is where it is.
func (d *Double) Publish(spec Spec) *Volume {
	d.tb.Helper()
	v, err := d.publish(context.Background(), spec)
	if err != nil {
		d.tb.Fatalf("publish a volume: %v", err)
	}
	return v
}

func (d *Double) publish(ctx context.Context, spec Spec) (*Volume, error) {
	if spec.Name == "" {
		spec.Name = "volume-" + strconv.FormatInt(d.volumes.Add(1), 10)
	}
	if spec.SizeBytes == 0 {
		spec.SizeBytes = DefaultSizeBytes
	}
	request := &csi.CreateVolumeRequest{
		Name: spec.Name, VolumeCapabilities: []*csi.VolumeCapability{spec.capability()},
		CapacityRange: &csi.CapacityRange{RequiredBytes: spec.SizeBytes}, Parameters: maps.Clone(spec.Parameters),
	}
	if spec.Breakable {
		if request.Parameters == nil {
			request.Parameters = map[string]string{}
		}
		request.Parameters["breakable"] = "true"
	}
	made, err := d.Controller().CreateVolume(ctx, request)
	if err != nil {
		return nil, err
	}
	dir, err := d.dir()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "v"); err != nil {
		return nil, err
	}
	v := &Volume{double: d, id: made.GetVolume().GetVolumeId(), path: filepath.Join(dir, "volume")}
	return v, d.carry(ctx, made.GetVolume(), spec.capability(), filepath.Join(dir, "staging"), v.path)
}

func (s Spec) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: s.FSType}},
	}
	if s.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

// carry takes a volume from its creation to its target, by the calls that the
// driver has.
func (d *Double) carry(ctx context.Context, v *csi.Volume, c *csi.VolumeCapability, staging, target string) error {
	n := d.nodes[0]
	var published map[string]string
	if d.has(ctx, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME) {
		r, err := d.Controller().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: v.GetVolumeId(), NodeId: n.Name, VolumeCapability: c, VolumeContext: v.GetVolumeContext(),
		})
		if err != nil {
			return err
		}
		published = r.GetPublishContext()
	}
	if d.stages(ctx) {
		if err := os.Mkdir(staging, 0o700); err != nil {
			return err
		}
		_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId: v.GetVolumeId(), PublishContext: published, StagingTargetPath: staging, VolumeCapability: c, VolumeContext: v.GetVolumeContext(),
		})
		if err != nil {
			return err
		}
	} else {
		staging = ""
	}
	_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), PublishContext: published, StagingTargetPath: staging, TargetPath: target, VolumeCapability: c, VolumeContext: v.GetVolumeContext(),
	})
	return err
}

// has reports whether the controller has a capability.
func (d *Double) has(ctx context.Context, want csi.ControllerServiceCapability_RPC_Type) bool {
	r, err := d.Controller().ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	for _, c := range r.GetCapabilities() {
		if err == nil && c.GetRpc().GetType() == want {
			return true
		}
	}
	return false
}

// stages reports whether the node stages volumes.
func (d *Double) stages(ctx context.Context) bool {
	r, err := d.nodes[0].NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	for _, c := range r.GetCapabilities() {
		if err == nil && c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME {
			return true
		}
	}
	return false
}

// Path is where Publish has published the volume: a directory, or a block device.
// A volume of Double.Volume has none.
func (v *Volume) Path() string { return v.path }

// ID is the volume's id.
func (v *Volume) ID() string { return v.id }
