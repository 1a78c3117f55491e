package registrar

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	legacyPrefix = "attachable-volumes-csi-"
	// A resource's name has fewer than 63 characters; longer ones are cut and get a
	// part of their hash.
	legacyLength, legacyName, legacyHash = 63, 23, 16
)

// LegacyLimitKey is the resource of a Node's status that held the volume limit of a
// driver before Kubernetes 1.17. Long names are shortened with a hash, as
// GetCSIAttachLimitKey of those versions does.
func LegacyLimitKey(driver string) string {
	if len(legacyPrefix)+len(driver) < legacyLength {
		return legacyPrefix + driver
	}
	sum := sha1.Sum([]byte(driver))
	return legacyPrefix + driver[:legacyName] + hex.EncodeToString(sum[:])[:legacyHash]
}

// setLegacyLimit writes the limit into a Node's capacity and allocatable; 0 removes
// it.
func (d *direct) setLegacyLimit(ctx context.Context, node *corev1.Node, driver string, limit int64) error {
	key := corev1.ResourceName(LegacyLimitKey(driver))
	set := func(list corev1.ResourceList) (value any, differs bool) {
		now, has := list[key]
		if limit == 0 {
			return nil, has
		}
		return strconv.FormatInt(limit, 10), !has || now.Value() != limit
	}
	status := map[string]any{}
	for field, list := range map[string]corev1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if value, differs := set(list); differs {
			status[field] = map[corev1.ResourceName]any{key: value}
		}
	}
	if len(status) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("write the volume limit of Node %s: %w", node.Name, err)
	}
	_, err = d.c.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if limit == 0 && apierrors.IsNotFound(err) {
		return nil // the Node is gone, and its status with it
	}
	if err != nil {
		return fmt.Errorf("write the volume limit of Node %s: %w", node.Name, err)
	}
	d.wrote("Node's status")
	return nil
}
