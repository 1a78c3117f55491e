package conformance

import (
	"context"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (v *volume) stageRequest() *csi.NodeStageVolumeRequest {
	v.c.Helper()
	if v.staging == "" {
		v.staging = v.c.path("staging", true)
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: v.GetVolumeId(), PublishContext: v.publishContext, StagingTargetPath: v.staging,
		VolumeCapability: v.capability, VolumeContext: v.GetVolumeContext(),
	}
}

// nodeStage calls NodeStageVolume. Whatever comes of it, the row undoes it.
func (c *check) nodeStage(r *csi.NodeStageVolumeRequest) error {
	_, err := c.node.NodeStageVolume(c.ctx, r)
	if unclear(err) {
		c.undoLater(staged(r.GetVolumeId(), r.GetStagingTargetPath()), func(ctx context.Context) error {
			_, err := c.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: r.GetVolumeId(), StagingTargetPath: r.GetStagingTargetPath()})
			return gone(err)
		})
	}
	return err
}

func staged(volumeID, path string) string    { return "volume " + volumeID + " staged at " + path }
func published(volumeID, path string) string { return "volume " + volumeID + " published at " + path }

// gone takes it for done that a volume is unknown to the node.
func gone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// stage stages the volume, where the driver does that in a call of its own.
func (v *volume) stage() {
	v.c.Helper()
	if v.c.has[stages] {
		v.c.ok(v.c.nodeStage(v.stageRequest()))
	}
}

func (v *volume) unstage() {
	v.c.Helper()
	if !v.c.has[stages] || v.staging == "" {
		return
	}
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) error {
		_, err := v.c.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: v.staging})
		return err
	}))
	v.c.undone(staged(v.GetVolumeId(), v.staging))
}

// publishRequest is a request for the volume's target; see at for others.
func (v *volume) publishRequest() *csi.NodePublishVolumeRequest {
	v.c.Helper()
	if v.target == "" {
		v.target = v.c.path("target", false)
	}
	return v.at(v.target)
}

func (v *volume) at(target string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), PublishContext: v.publishContext, StagingTargetPath: v.staging, TargetPath: target,
		VolumeCapability: v.capability, VolumeContext: v.GetVolumeContext(),
	}
}

// nodePublish calls NodePublishVolume. Whatever comes of it, the row undoes it.
func (c *check) nodePublish(r *csi.NodePublishVolumeRequest) error {
	_, err := c.node.NodePublishVolume(c.ctx, r)
	if unclear(err) {
		c.undoLater(published(r.GetVolumeId(), r.GetTargetPath()), func(ctx context.Context) error {
			_, err := c.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: r.GetTargetPath()})
			return gone(err)
		})
	}
	return err
}

func (v *volume) publish() {
	v.c.Helper()
	v.c.ok(v.c.nodePublish(v.publishRequest()))
}

func (v *volume) unpublish() {
	v.c.Helper()
	v.unpublishAt(v.target)
}

func (v *volume) unpublishAt(target string) {
	v.c.Helper()
	v.c.ok(retry(v.c.ctx, func(ctx context.Context) error {
		_, err := v.c.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target})
		return err
	}))
	v.c.undone(published(v.GetVolumeId(), target))
}

// up attaches, stages and publishes; ready does so but for the publication.
func (v *volume) up() *volume {
	v.c.Helper()
	v.ready()
	v.publish()
	return v
}

func (v *volume) ready() *volume {
	v.c.Helper()
	v.attach()
	v.stage()
	return v
}

// down is the reverse of up.
func (v *volume) down() {
	v.c.Helper()
	v.unpublish()
	v.unstage()
	v.detach()
}

// looks skips the row where published volumes cannot be looked at.
func (c *check) looks() {
	c.Helper()
	if c.NoData {
		c.Skipf("the data of this node's volumes cannot be looked at from here")
	}
}

// exists reports whether there is something at a path of the node.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
