package attacher

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/csiemu/csiemu/internal/role/driver"
)

// Errors of the source of a VolumeAttachment.
var (
	errBothSources = errors.New("both inlineVolumeSpec and persistentVolumeName are in the source of the VolumeAttachment")
	errNoSource    = errors.New("neither inlineVolumeSpec nor persistentVolumeName is in the source of the VolumeAttachment")
)

// source is what an attachment attaches.
type source struct {
	// volume is nil for an inline volume, which only those have that were
	// migrated from plugins in the tree.
	volume *volume
	spec   *corev1.PersistentVolumeSpec
}

// csi is the volume as the driver knows it.
func (s source) csi() *corev1.CSIPersistentVolumeSource { return s.spec.CSI }

// migrated says whether it was made for a plugin that was part of Kubernetes.
func (s source) migrated() bool { return s.spec != nil && (s.volume == nil || s.volume.inTree) }

// call is the context for a call of the driver about a source.
func (c *controller) call(ctx context.Context, s source) (context.Context, context.CancelFunc) {
	if c.keeper.translator.IsMigratedCSIDriverByName(c.name) {
		ctx = driver.WithMigrated(ctx, s.migrated())
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// check looks only at the attachment.
func (a *attachment) check() error {
	switch {
	case a.hasPV && a.hasInline:
		return errBothSources
	case !a.hasPV && !a.hasInline:
		return errNoSource
	case a.hasInline && a.inline == nil:
		return errNoCSI
	}
	return nil
}

// find finds the volume of an attachment; read does for one with a name.
func (c *controller) find(ctx context.Context, a *attachment, read func(context.Context, string) (*volume, error)) (source, error) {
	if err := a.check(); err != nil {
		return source{}, err
	}
	if a.hasInline {
		spec, err := c.keeper.unpack(a.inline)
		return source{spec: spec}, err
	}
	v, err := read(ctx, a.pv)
	if err != nil {
		return source{}, err
	}
	spec, err := c.specOf(v)
	return source{v, spec}, err
}

func (c *controller) specOf(v *volume) (*corev1.PersistentVolumeSpec, error) {
	if v.wrong != nil {
		return nil, v.wrong
	}
	return c.keeper.unpack(v.spec)
}
