package registrar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/internal/role/pause"
)

// migratedPlugins are the in-tree plugins that a kubelet 1.37 says are migrated.
func migratedPlugins() []string {
	return []string{
		"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
		"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
	}
}

// ensureCSINode writes the driver's entry into the CSINode of a node.
//
// A CSINode of an earlier node of the same name is deleted and made anew. An entry
// cannot be changed except in its limit, and before Kubernetes 1.33 not there either:
// then it is removed first and written after that.
func (d *direct) ensureCSINode(ctx context.Context, node *corev1.Node) error {
	client := d.c.Client.StorageV1().CSINodes()
	want := d.entry()
	return onConflict(ctx, func() error {
		object, err := client.Get(ctx, node.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return d.createCSINode(ctx, node, want)
		case err != nil:
			return fmt.Errorf("get CSINode %s: %w", node.Name, err)
		case !ownedBy(object, node):
			d.c.Log.Info("replacing a CSINode of an earlier node", "node", node.Name)
			uid := object.UID
			if err := client.Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete CSINode %s of an earlier node: %w", node.Name, err)
			}
			return d.createCSINode(ctx, node, want)
		}
		replace := func() error {
			if object, err = d.removeEntry(ctx, object, want.Name); err == nil {
				object.Spec.Drivers = append(object.Spec.Drivers, want)
			}
			return err
		}
		was := indexOf(object.Spec.Drivers, want.Name)
		annotated := d.setMigrated(object)
		switch {
		case was < 0:
			object.Spec.Drivers = append(object.Spec.Drivers, want)
		case !sameEntry(object.Spec.Drivers[was], want):
			if err := replace(); err != nil {
				return err
			}
		case !sameLimit(object.Spec.Drivers[was], want):
			object.Spec.Drivers[was].Allocatable = want.Allocatable
		case !annotated:
			return nil
		}
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) && was >= 0 {
			if err = replace(); err == nil {
				_, err = client.Update(ctx, object, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("update CSINode %s: %w", node.Name, err)
		}
		d.wrote("CSINode")
		return nil
	})
}

// createCSINode makes the object with the driver's entry. Deleting the Node deletes
// it.
func (d *direct) createCSINode(ctx context.Context, node *corev1.Node, want storagev1.CSINodeDriver) error {
	object := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{want}},
	}
	d.setMigrated(object)
	if _, err := d.c.Client.StorageV1().CSINodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create CSINode %s: %w", node.Name, err)
	}
	d.wrote("CSINode")
	return nil
}

// removeEntry removes a driver's entry and returns the object after that.
func (d *direct) removeEntry(ctx context.Context, object *storagev1.CSINode, driver string) (*storagev1.CSINode, error) {
	object.Spec.Drivers = slices.DeleteFunc(object.Spec.Drivers, func(e storagev1.CSINodeDriver) bool { return e.Name == driver })
	after, err := d.c.Client.StorageV1().CSINodes().Update(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("remove driver %s from CSINode %s: %w", driver, object.Name, err)
	}
	return after, nil
}

// entry is the driver's entry, by the kubelet's rules: a limit of 0 means none, one
// that is too large is cut, a negative one is left out.
func (d *direct) entry() storagev1.CSINodeDriver {
	info := d.id.node
	e := storagev1.CSINodeDriver{
		Name: d.id.Name, NodeID: info.GetNodeId(),
		TopologyKeys: slices.Sorted(maps.Keys(info.GetAccessibleTopology().GetSegments())),
	}
	switch limit := info.GetMaxVolumesPerNode(); {
	case limit > 0:
		count := int32(min(limit, math.MaxInt32))
		e.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	case limit < 0:
		d.c.Log.Warn("the driver's volume limit is negative and left out", "driver", d.id.Name, "max_volumes_per_node", limit)
	}
	return e
}

func ownedBy(object *storagev1.CSINode, node *corev1.Node) bool {
	for _, owner := range object.OwnerReferences {
		if owner.Kind == "Node" && owner.UID == node.UID {
			return true
		}
	}
	return false
}

func indexOf(entries []storagev1.CSINodeDriver, driver string) int {
	return slices.IndexFunc(entries, func(e storagev1.CSINodeDriver) bool { return e.Name == driver })
}

// sameEntry compares what cannot be changed in an entry.
func sameEntry(a, b storagev1.CSINodeDriver) bool {
	return a.NodeID == b.NodeID && slices.Equal(slices.Sorted(slices.Values(a.TopologyKeys)), slices.Sorted(slices.Values(b.TopologyKeys)))
}

func sameLimit(a, b storagev1.CSINodeDriver) bool { return limitOf(a) == limitOf(b) }

func limitOf(e storagev1.CSINodeDriver) int32 {
	if e.Allocatable == nil || e.Allocatable.Count == nil {
		return 0
	}
	return *e.Allocatable.Count
}

// setMigrated sets the annotation of migrated plugins and reports whether it was
// another one.
func (d *direct) setMigrated(object *storagev1.CSINode) bool {
	text := strings.Join(slices.Sorted(slices.Values(d.c.Direct.MigratedPlugins)), ",")
	if object.Annotations[corev1.MigratedPluginsAnnotationKey] == text {
		return false
	}
	if text == "" {
		delete(object.Annotations, corev1.MigratedPluginsAnnotationKey)
		return true
	}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[corev1.MigratedPluginsAnnotationKey] = text
	return true
}

// wrote notes a write.
func (d *direct) wrote(what string) {
	d.report.update(func(s *State) { s.LastNotify = time.Now() })
	d.c.Log.Info("wrote to the API server", "driver", d.id.Name, "node", d.c.Direct.NodeName, "object", what)
}

// onConflict does something again that somebody else came before, a few times.
func onConflict(ctx context.Context, do func() error) error {
	again := pause.Doubling{First: 10 * time.Millisecond, Most: time.Second}
	const times = 5
	var err error
	for range times {
		err = do()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if again.Wait(ctx) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
	return err
}
