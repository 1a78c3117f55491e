package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How often, and for how long at most, an attachment is asked for again.
const (
	retryEvery = 100 * time.Millisecond
	retryFor   = 20 * time.Second
)

// volume is one volume and where it is now. Each thing made is in undo until
// it is taken away.
type volume struct {
	client *client
	undo   *undo
	shape  shape
	name   string
	dir    string // its staging and target paths

	id             string
	volumeContext  map[string]string
	publishContext map[string]string

	deleted, detached, unstaged, unpublished *entry
}

func (v *volume) staging() string { return filepath.Join(v.dir, "staging") }
func (v *volume) target() string  { return filepath.Join(v.dir, "target") }

// data and log are where the walk's bytes lie in the published volume.
func (v *volume) data() place {
	if v.shape.block {
		return place{path: v.target(), bytes: v.shape.data}
	}
	return place{path: filepath.Join(v.target(), "data"), bytes: v.shape.data}
}

func (v *volume) log() place {
	if v.shape.block {
		return place{path: v.target(), offset: v.shape.data, bytes: logBytes}
	}
	return place{path: filepath.Join(v.target(), "log"), bytes: logBytes}
}

// create makes the volume, empty or with the bytes of source.
func (v *volume) create(ctx context.Context, bytes int64, source *csi.VolumeContentSource) (int64, error) {
	made, err := v.client.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:                v.name,
		CapacityRange:       &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities:  []*csi.VolumeCapability{v.shape.capability()},
		VolumeContentSource: source,
	})
	if err != nil {
		return 0, err
	}
	v.id, v.volumeContext = made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext()
	v.deleted = v.undo.add("delete "+v.name, func(ctx context.Context) error {
		_, err := v.client.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
		return err
	})
	return made.GetVolume().GetCapacityBytes(), nil
}

// attach makes the volume's device appear on the node, where the driver does
// that in a call of its own.
func (v *volume) attach(ctx context.Context) error {
	v.detached = v.undo.add("detach "+v.name, func(ctx context.Context) error {
		_, err := v.client.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.client.nodeID})
		return err
	})
	made, err := v.attached(ctx)
	v.publishContext = made.GetPublishContext()
	return err
}

// attached calls until the device of an earlier attachment is free. Another
// process that has copied the mounts of this machine, as every new container
// does, may keep it for a while; an orchestrator calls again, too.
func (v *volume) attached(ctx context.Context) (*csi.ControllerPublishVolumeResponse, error) {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	limit := time.NewTimer(retryFor)
	defer limit.Stop()
	for {
		made, err := v.client.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: v.id, NodeId: v.client.nodeID, VolumeCapability: v.shape.capability(), VolumeContext: v.volumeContext,
		})
		if status.Code(err) != codes.FailedPrecondition {
			return made, err
		}
		select {
		case <-again.C:
		case <-limit.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (v *volume) stage(ctx context.Context) error {
	if err := os.MkdirAll(v.staging(), 0o700); err != nil {
		return fmt.Errorf("make the staging directory: %w", err)
	}
	v.unstaged = v.undo.add("unstage "+v.name, func(ctx context.Context) error {
		_, err := v.client.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging()})
		return err
	})
	_, err := v.client.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging(),
		VolumeCapability: v.shape.capability(), VolumeContext: v.volumeContext,
	})
	return err
}

func (v *volume) publish(ctx context.Context) error {
	v.unpublished = v.undo.add("unpublish "+v.name, func(ctx context.Context) error {
		_, err := v.client.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target()})
		return err
	})
	_, err := v.client.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, PublishContext: v.publishContext, StagingTargetPath: v.staging(), TargetPath: v.target(),
		VolumeCapability: v.shape.capability(), VolumeContext: v.volumeContext,
	})
	return err
}

// use attaches, stages and publishes.
func (v *volume) use(ctx context.Context) error {
	if v.client.attaches {
		if err := v.attach(ctx); err != nil {
			return err
		}
	}
	if err := v.stage(ctx); err != nil {
		return err
	}
	return v.publish(ctx)
}

// remove takes the volume from the node and deletes it.
func (v *volume) remove(ctx context.Context) error {
	for _, e := range []*entry{v.unpublished, v.unstaged, v.detached, v.deleted} {
		if e == nil {
			continue
		}
		if err := v.undo.now(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
	}
	return nil
}

// usage is the size and the used bytes that the node reports; for a block
// volume only the size is known.
func (v *volume) usage(ctx context.Context) (total, used int64, err error) {
	stats, err := v.client.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target()})
	if err != nil {
		return 0, 0, err
	}
	for _, u := range stats.GetUsage() {
		if u.GetUnit() == csi.VolumeUsage_BYTES {
			return u.GetTotal(), u.GetUsed(), nil
		}
	}
	return 0, 0, fmt.Errorf("the driver reports no bytes of %s", v.name)
}
