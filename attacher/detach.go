package attacher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// detachOne works on a name from the queue of detaches.
func (c *controller) detachOne(ctx context.Context, name string) {
	c.one(ctx, name, c.detaching, true, c.detach)
}

// detach unpublishes a volume and lets the VolumeAttachment go, or records why not.
// Any error of the driver counts as attached, NOT_FOUND too: a volume or a node that
// is gone is an OK of ControllerUnpublishVolume.
func (c *controller) detach(ctx context.Context, a *attachment) error {
	if !c.forced.take(a.name) && !a.finalized {
		return nil
	}
	can := c.can.Load()
	if can == nil {
		return c.detachFailed(ctx, a, c.errAway())
	}
	if can.publishes {
		if err := c.unpublish(ctx, a, can); err != nil {
			return c.detachFailed(ctx, a, err)
		}
	}
	if err := c.letGo(ctx, a); err != nil {
		return c.detachFailed(ctx, a, fmt.Errorf("mark as detached: %w", err))
	}
	c.log.Debug("detached", "attachment", a.name, "volume", a.pv, "node", a.node.Value())
	return nil
}

func (c *controller) unpublish(ctx context.Context, a *attachment, can *abilities) error {
	s, handle, err := c.attachedVolume(ctx, a, can)
	if err != nil {
		return err
	}
	r := &csi.ControllerUnpublishVolumeRequest{VolumeId: handle}
	if s.spec != nil {
		if r.Secrets, err = c.secrets(ctx, s.csi().ControllerPublishSecretRef); err != nil {
			return err
		}
	}
	if r.NodeId, err = c.nodeID(ctx, a, true); err != nil {
		return err
	}
	call, cancel := c.call(ctx, s)
	defer cancel()
	if _, err := c.csi.ControllerUnpublishVolume(call, r); err != nil {
		return clean(r, err)
	}
	return nil
}

// attachedVolume is what to detach, and its handle. A PersistentVolume that somebody
// has deleted by force takes its secrets with it, but not the duty to detach
// (kubernetes-csi/external-attacher#235).
func (c *controller) attachedVolume(ctx context.Context, a *attachment, can *abilities) (s source, handle string, err error) {
	s, err = c.find(ctx, a, c.findVolume)
	if err == nil {
		if a.handle != "" && !c.Strict {
			// Another one has the name now: a handle never changes.
			return s, a.handle, nil
		}
		return s, s.csi().VolumeHandle, nil
	}
	if c.Strict || !apierrors.IsNotFound(err) {
		return source{}, "", err
	}
	if a.handle != "" {
		return source{}, a.handle, nil
	}
	if handle, known := c.guess(ctx, a, can); known {
		return source{}, handle, nil
	}
	return source{}, "", fmt.Errorf("%w, and nothing tells which volume of %s it was: detach it there, then remove the finalizer %s",
		err, c.name, c.keeper.finalizer)
}

// guess looks among all volumes of the driver for that of an attachment which
// another attacher made: the controller-manager makes the name of a VolumeAttachment
// from volume, driver and node.
func (c *controller) guess(ctx context.Context, a *attachment, can *abilities) (handle string, known bool) {
	if !can.lists {
		return "", false
	}
	listing, cancel := context.WithTimeout(ctx, c.listLimit())
	defer cancel()
	err := c.listVolumes(listing, func(e *csi.ListVolumesResponse_Entry) {
		if id := e.GetVolume().GetVolumeId(); nameOf(id, c.name, a.node.Value()) == a.name {
			handle, known = id, true
		}
	})
	if err != nil {
		c.log.Warn("could not look for a volume", "attachment", a.name, "error", err)
	}
	return handle, known
}

// nameOf is the name that the controller-manager gives to a VolumeAttachment.
func nameOf(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// letGo takes our finalizer from a VolumeAttachment. That comes first: the other way
// around, the finalizer of something that is not attached has it detached once
// more (kubernetes-csi/external-attacher#587). The status comes second, if the
// object is still there then: it is not if the finalizer was its last.
func (c *controller) letGo(ctx context.Context, a *attachment) error {
	if !a.finalized && !a.attached {
		return nil
	}
	if a.finalized {
		var err error
		a, err = c.patchMetadata(ctx, a, kube.Metadata{Remove: []string{c.keeper.finalizer}})
		if apierrors.IsNotFound(err) || (err == nil && len(a.finalizers.names()) == 0 && !c.Strict) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := c.patchStatus(ctx, a, "/status", map[string]any{"attached": false})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
