package attacher

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// attachOne works on a name from the queue of attaches.
func (c *controller) attachOne(ctx context.Context, name string) {
	c.one(ctx, name, c.attaching, false, c.attach)
}

// one works on an attachment. While another worker does, it only has that one put
// the attachment in its queue again.
func (c *controller) one(ctx context.Context, name string, p *pool, deleting bool, do func(context.Context, *attachment) error) {
	if !c.busy.begin(name) {
		return
	}
	var err error
	a, ok := c.latestAttachments.Get(name)
	switch {
	case ok && a.deleting != deleting:
		c.enqueue(a)
	case ok:
		err = do(ctx, a)
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn("will try again", "attachment", name, "volume", a.pv, "node", a.node.Value(), "error", err)
	}
	p.result(name, err)
	if c.busy.end(name) {
		if a, ok := c.latestAttachments.Get(name); ok {
			c.enqueue(a)
		}
	}
}

// attach publishes a volume, and records that it did or why not.
func (c *controller) attach(ctx context.Context, a *attachment) error {
	if !c.forced.take(a.name) && a.attached {
		return nil
	}
	can := c.can.Load()
	if can == nil {
		return c.attachFailed(ctx, a, c.errAway())
	}
	var published map[string]string
	if can.publishes {
		var err error
		if a, published, err = c.publish(ctx, a, can); err != nil {
			return c.attachFailed(ctx, a, err)
		}
	}
	status := map[string]any{"attached": true}
	if len(published) > 0 {
		status["attachmentMetadata"] = published
	}
	if err := c.patchStatus(ctx, a, "/status", status); err != nil {
		return fmt.Errorf("mark as attached: %w", err)
	}
	c.log.Debug("attached", "attachment", a.name, "volume", a.pv, "node", a.node.Value())
	return nil
}

// publish calls the driver. What can be checked is checked before our finalizer is
// on the VolumeAttachment, which would keep it from being deleted.
func (c *controller) publish(ctx context.Context, a *attachment, can *abilities) (*attachment, map[string]string, error) {
	s, err := c.find(ctx, a, c.protectedVolume)
	if err != nil {
		return a, nil, err
	}
	r := &csi.ControllerPublishVolumeRequest{
		VolumeId: s.csi().VolumeHandle, VolumeContext: s.csi().VolumeAttributes,
		// "The CO MUST set this field to false if SP does not have the
		// PUBLISH_READONLY controller capability" (CSI, ControllerPublishVolume).
		Readonly: s.csi().ReadOnly && can.readOnly,
	}
	if r.VolumeCapability, err = capability(s.spec, can.multiWriter, c.DefaultFSType); err != nil {
		return a, nil, err
	}
	if r.Secrets, err = c.secrets(ctx, s.csi().ControllerPublishSecretRef); err != nil {
		return a, nil, err
	}
	if r.NodeId, err = c.nodeID(ctx, a, false); err != nil {
		return a, nil, err
	}
	if a, err = c.claim(ctx, a, r.NodeId, r.VolumeId); err != nil {
		return a, nil, fmt.Errorf("save the VolumeAttachment: %w", err)
	}
	call, cancel := c.call(ctx, s)
	defer cancel()
	reply, err := c.csi.ControllerPublishVolume(call, r)
	if err != nil {
		return a, nil, clean(r, err)
	}
	return a, reply.GetPublishContext(), nil
}

// protectedVolume is findVolume for an attach: the volume is not to be deleted, and
// will not be before it is detached.
func (c *controller) protectedVolume(ctx context.Context, name string) (*volume, error) {
	v, err := c.findVolume(ctx, name)
	if err != nil {
		return nil, err
	}
	if v.deleting {
		return nil, fmt.Errorf("PersistentVolume %q is marked for deletion", name)
	}
	if v.wrong != nil {
		return nil, v.wrong
	}
	if v.driver.Value() != c.name {
		return nil, fmt.Errorf("PersistentVolume %q belongs to driver %q, not to %q", name, v.driver.Value(), c.name)
	}
	return v, c.protect(ctx, v)
}

// claim puts on a VolumeAttachment, in one write, our finalizer and what a detach
// needs when node or volume are gone.
func (c *controller) claim(ctx context.Context, a *attachment, nodeID, handle string) (*attachment, error) {
	m := kube.Metadata{Annotations: map[string]string{}}
	if !a.finalized {
		m.Add = []string{c.keeper.finalizer}
	}
	if a.nodeID != nodeID {
		m.Annotations[nodeIDAnnotation] = nodeID
	}
	if a.handle != handle && a.hasPV && !c.Strict {
		m.Annotations[handleAnnotation] = handle
	}
	if !m.Changes() {
		return a, nil
	}
	return c.patchMetadata(ctx, a, m)
}

// capability is how a volume is to be used.
func capability(s *corev1.PersistentVolumeSpec, multiWriter bool, fsType string) (*csi.VolumeCapability, error) {
	mode, err := accessmodes.ToCSIAccessMode(s.AccessModes, multiWriter)
	if err != nil {
		return nil, err
	}
	is := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if s.VolumeMode != nil && *s.VolumeMode == corev1.PersistentVolumeBlock {
		is.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return is, nil
	}
	if s.CSI.FSType != "" {
		fsType = s.CSI.FSType
	}
	is.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: s.MountOptions}}
	return is, nil
}
