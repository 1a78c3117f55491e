package main

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	clientwatch "k8s.io/client-go/tools/watch"
)

const (
	gib = 1 << 30
	// atOnce is how many requests the preparation makes at once.
	atOnce = 64
	// finalizer is that of external-attacher for the driver, and so csiemu's.
	finalizer = "external-attacher/memory-csiemu-dev"
)

// each does something for all numbers below n, many at once.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func objectName(set string, i int) string { return fmt.Sprintf("%s-%d", set, i) }

// volumes makes n volumes and their objects, named after a set.
func (w *world) volumes(ctx context.Context, set string, n int, finalizers ...string) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		name := objectName(set, i)
		id, err := w.volume(ctx, name)
		if err != nil {
			return err
		}
		_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec: core.PersistentVolumeSpec{
				StorageClassName: "bench", AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
				Capacity: core.ResourceList{core.ResourceStorage: *resource.NewQuantity(gib, resource.BinarySI)},
				PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
					Driver: driverName, VolumeHandle: id, FSType: "ext4",
				}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// attachments asks for n volumes of a set to be attached.
func (w *world) attachments(ctx context.Context, set string, n int) error {
	return each(ctx, n, func(ctx context.Context, i int) error { return w.attachment(ctx, set, i) })
}

func (w *world) attachment(ctx context.Context, set string, i int) error {
	name := objectName(set, i)
	_, err := w.client.StorageV1().VolumeAttachments().Create(ctx, &storage.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storage.VolumeAttachmentSpec{Attacher: driverName, NodeName: nodeName(i), Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}, metav1.CreateOptions{})
	return err
}

// detachments asks for n volumes of a set to be detached.
func (w *world) detachments(ctx context.Context, set string, n int) error {
	return each(ctx, n, func(ctx context.Context, i int) error { return w.detachment(ctx, set, i) })
}

func (w *world) detachment(ctx context.Context, set string, i int) error {
	return w.client.StorageV1().VolumeAttachments().Delete(ctx, objectName(set, i), metav1.DeleteOptions{})
}

// discard deletes the objects of volumes, with finalizers, and the volumes.
func (w *world) discard(ctx context.Context, set string, n int) error {
	volumes := w.client.CoreV1().PersistentVolumes()
	return each(ctx, n, func(ctx context.Context, i int) error {
		name := objectName(set, i)
		_, err := volumes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = volumes.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if errors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// awaiting counts VolumeAttachments until each of a set is as it should be.
type awaiting struct {
	w    watch.Interface
	once sync.Once
}

// await begins to look; its wait returns when n VolumeAttachments have reached what
// is asked for.
func (w *world) await(ctx context.Context) (*awaiting, error) {
	list, err := w.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	watched, err := follow(ctx, w.client, list.ResourceVersion)
	if err != nil {
		return nil, err
	}
	return &awaiting{w: watched}, nil
}

// follow watches VolumeAttachments from a version on. A busy API server ends watches
// that it cannot serve in time, and they begin again where they ended.
func follow(ctx context.Context, client kubernetes.Interface, version string) (watch.Interface, error) {
	return clientwatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.StorageV1().VolumeAttachments().Watch(ctx, o)
		},
	})
}

func (a *awaiting) stop() { a.once.Do(a.w.Stop) }

// wait waits until so many different objects have had an event as asked for.
func (a *awaiting) wait(ctx context.Context, n int, reached func(watch.EventType, *storage.VolumeAttachment) bool) error {
	defer a.stop()
	seen := map[string]bool{}
	for len(seen) < n {
		select {
		case e, open := <-a.w.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d of %d VolumeAttachments as they should be ", len(seen), n)
			}
			if e.Type == watch.Error {
				return fmt.Errorf("watch VolumeAttachments: %w", errors.FromObject(e.Object))
			}
			if va, ok := e.Object.(*storage.VolumeAttachment); ok && reached(e.Type, va) {
				seen[va.Name] = true
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d VolumeAttachments are as they should be: %w", len(seen), n, context.Cause(ctx))
		}
	}
	return nil
}

func attached(_ watch.EventType, va *storage.VolumeAttachment) bool { return va.Status.Attached }

func gone(event watch.EventType, _ *storage.VolumeAttachment) bool { return event == watch.Deleted }
