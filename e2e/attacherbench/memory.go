package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resident is the memory of a contender, in bytes, without objects and with all.
type resident struct {
	name        string
	empty, full int64
}

// memory measures the contenders that have settings of their own only in speed:
// both with their defaults.
func (w *world) memory(ctx context.Context, o options) ([]resident, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	if err := w.slow(ctx, 0); err != nil {
		return nil, err
	}
	var rows []resident
	for _, c := range contenders(o.csiemu) {
		if len(c.command) == 0 || !strings.HasSuffix(c.name, ", defaults") || !o.run.MatchString(c.name) {
			continue
		}
		n, err := w.residentOf(ctx, c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, resident{name: c.name, empty: n})
	}
	const set = "m"
	fmt.Fprintf(os.Stderr, "making %d volumes and their attachments\n", o.objects)
	if err := w.volumes(ctx, set, o.objects, finalizer); err != nil {
		return nil, err
	}
	if err := w.attachments(ctx, set, o.objects); err != nil {
		return nil, err
	}
	if err := each(ctx, o.objects, func(ctx context.Context, i int) error { return w.setAttached(ctx, objectName(set, i), nodeName(i)) }); err != nil {
		return nil, err
	}
	for _, c := range contenders(o.csiemu) {
		for i := range rows {
			if rows[i].name != c.name {
				continue
			}
			var err error
			if rows[i].full, err = w.residentOf(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

// setAttached makes a VolumeAttachment what an attacher would have made of it.
func (w *world) setAttached(ctx context.Context, name, node string) error {
	attachments := w.client.StorageV1().VolumeAttachments()
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"annotations":{"csi.alpha.kubernetes.io/node-id":%q}}}`, finalizer, node)
	if _, err := attachments.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := attachments.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
	return err
}

// steady is how long the memory must not have changed by a MiB to be what counts.
const steady = 5 * time.Second

// residentOf starts a contender and waits until its memory does not change any more.
func (w *world) residentOf(ctx context.Context, c contender) (n int64, err error) {
	works, err := w.start(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, works.stop()) }()
	pid := works.(*running).p.PID()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	since, last := time.Now(), int64(0)
	for time.Since(since) < steady {
		select {
		case <-second.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if n, err = residentOf(pid); err != nil {
			return 0, err
		}
		if difference := n - last; difference > 1<<20 || difference < -1<<20 {
			since, last = time.Now(), n
		}
	}
	return n, nil
}
