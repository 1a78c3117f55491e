package registrar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// nodeIDAnnotation is the kubelet's: a JSON map of drivers to their node ids.
	nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"
	// topologyAnnotation is ours: a JSON map of drivers to the keys of the labels
	// that were added for them. Only those are changed and taken back.
	topologyAnnotation = "csiemu.dev/topology-labels"
)

// ErrTopologyCollision is in the problem of a driver that tells another value for a
// topology key than a label of the Node which the registrar did not add.
var ErrTopologyCollision = errors.New("detected topology value collision")

// ensureNode writes the annotation, the labels and, where wanted, the limit, and
// returns the Node.
func (d *direct) ensureNode(ctx context.Context) (*corev1.Node, error) {
	inUse, err := d.topologyOfOthers(ctx, d.id.Name)
	if err != nil {
		return nil, err
	}
	info := d.id.node
	node, err := d.changeNode(ctx, func(n *corev1.Node) error {
		if err := setTopology(n, d.id.Name, info.GetAccessibleTopology().GetSegments(), inUse); err != nil {
			return err
		}
		return setInMap(n, nodeIDAnnotation, d.id.Name, info.GetNodeId())
	})
	if err != nil || !d.c.Direct.LegacyLimits {
		return node, err
	}
	return node, d.setLegacyLimit(ctx, node, d.id.Name, max(0, info.GetMaxVolumesPerNode()))
}

// changeNode gets the Node, and patches the metadata that change changed. A patch
// that somebody else came before is made anew.
func (d *direct) changeNode(ctx context.Context, change func(*corev1.Node) error) (*corev1.Node, error) {
	name := d.c.Direct.NodeName
	var node *corev1.Node
	err := onConflict(ctx, func() error {
		before, err := d.c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("register driver %s: there is no Node %s, waiting for it: %w", d.id.Name, name, err)
		}
		if err != nil {
			return fmt.Errorf("get Node %s: %w", name, err)
		}
		node = before.DeepCopy()
		if err := change(node); err != nil {
			return fmt.Errorf("change Node %s: %w", name, err)
		}
		patch, err := metadataPatch(before, node)
		if err != nil || patch == nil {
			return err
		}
		if node, err = d.c.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch Node %s: %w", name, err)
		}
		d.wrote("Node")
		return nil
	})
	return node, err
}

// metadataPatch is a merge patch of what differs in labels and annotations, nil if
// nothing does. It fails with a conflict if the Node is another one by then.
func metadataPatch(before, after *corev1.Node) ([]byte, error) {
	labels, annotations := difference(before.Labels, after.Labels), difference(before.Annotations, after.Annotations)
	if len(labels)+len(annotations) == 0 {
		return nil, nil
	}
	metadata := map[string]any{"resourceVersion": before.ResourceVersion, "uid": before.UID}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// difference is what of a map a merge patch has to set, or to remove by nil.
func difference(before, after map[string]string) map[string]any {
	d := map[string]any{}
	for k, v := range after {
		if was, has := before[k]; !has || was != v {
			d[k] = v
		}
	}
	for k := range before {
		if _, has := after[k]; !has {
			d[k] = nil
		}
	}
	return d
}

// setTopology sets the labels of a driver's topology, and removes those that were
// added for it, are not in its topology any more and are not in use by others.
func setTopology(n *corev1.Node, driver string, segments map[string]string, inUse map[string]bool) error {
	added, err := readMap[[]string](n, topologyAnnotation)
	if err != nil {
		return err
	}
	own := added[driver]
	var keep []string
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		value := segments[key]
		current, has := n.Labels[key]
		mine := slices.Contains(own, key) && !inUse[key]
		if has && current != value && !mine {
			return fmt.Errorf("%w: driver %s reports %s=%q, the label is %q", ErrTopologyCollision, driver, key, value, current)
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
		if !has || slices.Contains(own, key) {
			keep = append(keep, key)
		}
	}
	for _, key := range own {
		if _, still := segments[key]; !still && !inUse[key] {
			delete(n.Labels, key)
		}
	}
	if len(keep) == 0 {
		return removeFromMap[[]string](n, topologyAnnotation, driver)
	}
	return setInMap(n, topologyAnnotation, driver, keep)
}

// topologyOfOthers are the topology keys of the drivers on this node but one.
func (d *direct) topologyOfOthers(ctx context.Context, driver string) (map[string]bool, error) {
	keys := map[string]bool{}
	object, err := d.c.Client.StorageV1().CSINodes().Get(ctx, d.c.Direct.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return keys, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get CSINode %s: %w", d.c.Direct.NodeName, err)
	}
	for _, other := range object.Spec.Drivers {
		if other.Name == driver {
			continue
		}
		for _, key := range other.TopologyKeys {
			keys[key] = true
		}
	}
	return keys, nil
}
