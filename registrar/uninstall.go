package registrar

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uninstall takes a driver's entries back: first the CSINode's, so that schedulers
// stop to use the driver, then the Node's. The CSINode itself stays, as with the
// kubelet. Labels go that were added for the driver and are no other driver's.
func (d *direct) uninstall(ctx context.Context, driver string) error {
	return errors.Join(d.leaveCSINode(ctx, driver), d.leaveNode(ctx, driver))
}

func (d *direct) leaveCSINode(ctx context.Context, driver string) error {
	name := d.c.Direct.NodeName
	return onConflict(ctx, func() error {
		object, err := d.c.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get CSINode %s: %w", name, err)
		}
		if indexOf(object.Spec.Drivers, driver) < 0 {
			return nil
		}
		_, err = d.removeEntry(ctx, object, driver)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (d *direct) leaveNode(ctx context.Context, driver string) error {
	inUse, err := d.topologyOfOthers(ctx, driver)
	if err != nil {
		return err
	}
	node, err := d.changeNode(ctx, func(n *corev1.Node) error {
		return errors.Join(
			setTopology(n, driver, nil, inUse),
			removeFromMap[string](n, nodeIDAnnotation, driver))
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil // the Node is gone, and everything with it
	case err != nil || !d.c.Direct.LegacyLimits:
		return err
	}
	return d.setLegacyLimit(ctx, node, driver, 0)
}

// leaveFormer takes back what is written of drivers that came back with another
// name.
func (d *direct) leaveFormer(ctx context.Context) error {
	for len(d.former) > 0 {
		if err := d.uninstall(ctx, d.former[0]); err != nil {
			return fmt.Errorf("take the registration of former driver %s back: %w", d.former[0], err)
		}
		d.former = d.former[1:]
	}
	return nil
}
