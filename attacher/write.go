package attacher

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// request makes one request to the API server, in its turn and with a time limit of
// its own. Under the limit of a call of the driver, as external-attacher has it, a
// slow server has volumes detached twice.
func (c *controller) request(ctx context.Context, do func(context.Context) error) error {
	select {
	case c.writes <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn at the API server: %w", ctx.Err())
	}
	defer func() { <-c.writes }()
	ctx, cancel := context.WithTimeout(ctx, c.WriteTimeout)
	defer cancel()
	return do(ctx)
}

// patchMetadata writes to a VolumeAttachment and returns it as it is then.
func (c *controller) patchMetadata(ctx context.Context, a *attachment, m kube.Metadata) (*attachment, error) {
	m.UID = a.uid
	return c.patchAttachment(ctx, a, types.StrategicMergePatchType, m.Bytes())
}

// patchStatus writes to the status of a VolumeAttachment.
func (c *controller) patchStatus(ctx context.Context, a *attachment, path string, value any) error {
	_, err := c.patchAttachment(ctx, a, types.JSONPatchType, kube.ForUID(a.uid).Set(path, value).Bytes(), "status")
	return err
}

func (c *controller) patchAttachment(ctx context.Context, a *attachment, form types.PatchType, patch []byte, subresources ...string) (*attachment, error) {
	err := c.request(ctx, func(ctx context.Context) error {
		answer, err := c.Client.StorageV1().VolumeAttachments().Patch(ctx, a.name, form, patch, metav1.PatchOptions{}, subresources...)
		if err != nil {
			return err
		}
		if is, ours := c.keeper.attachment(answer).(*attachment); ours {
			a = is
			c.latestAttachments.Wrote(a.name, a)
		}
		return nil
	})
	return a, err
}

// patchVolume writes to a PersistentVolume.
func (c *controller) patchVolume(ctx context.Context, name string, m kube.Metadata) error {
	return c.request(ctx, func(ctx context.Context) error {
		answer, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.StrategicMergePatchType, m.Bytes(), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		if is, ours := c.keeper.volume(answer).(*volume); ours {
			c.latestVolumes.Wrote(name, is)
		}
		return nil
	})
}

// findVolume returns the volume of an attachment. One that the cache does not have
// may be so new that the cache will have it soon: the server is asked.
func (c *controller) findVolume(ctx context.Context, name string) (*volume, error) {
	if v, ok := c.latestVolumes.Get(name); ok {
		return v, nil
	}
	return c.readVolume(ctx, name)
}

func (c *controller) readVolume(ctx context.Context, name string) (*volume, error) {
	var pv *corev1.PersistentVolume
	err := c.request(ctx, func(ctx context.Context) (err error) {
		pv, err = c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.keeper.wholeVolume(pv), nil
}

// nodeID is the id of an attachment's node as the driver knows it, from the CSINode.
// annotated also takes the one that was noted at the attach, as the node or its
// driver may be gone.
func (c *controller) nodeID(ctx context.Context, a *attachment, annotated bool) (string, error) {
	name := a.node.Value()
	if n, ok := lookup[*node](c.nodes)(name); ok {
		return n.id, nil
	}
	if annotated && a.nodeID != "" {
		return a.nodeID, nil
	}
	var answer *storagev1.CSINode
	err := c.request(ctx, func(ctx context.Context) (err error) {
		answer, err = c.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return "", err
	}
	if n, has := c.keeper.node(answer).(*node); has {
		return n.id, nil
	}
	return "", fmt.Errorf("CSINode %s does not contain driver %s", name, c.name)
}

// secrets are read anew for each call, so that a new password is used at once.
func (c *controller) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secrets := map[string]string{}
	err := c.request(ctx, func(ctx context.Context) error {
		secret, err := c.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("load secret %q: %w", ref.Namespace+"/"+ref.Name, err)
		}
		for key, value := range secret.Data {
			secrets[key] = string(value)
		}
		return nil
	})
	return secrets, err
}
