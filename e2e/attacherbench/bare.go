package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// bareAtOnce is how many attachments the bare client works on at once: as many as
// there are.
const bareAtOnce = 4096

// bare is a client that makes the writes and the calls of an attacher and nothing
// else: no cache, no queue, no errors handled. It is what an attacher is measured
// against.
type bare struct {
	w         *world
	client    kubernetes.Interface
	finalized bool
	cancel    context.CancelFunc
	all       sync.WaitGroup
	slots     chan struct{}
	failed    chan error

	mu sync.Mutex
	// gate is closed while it works; a paused one waits for it.
	gate chan struct{}
	// busy are the attachments that it attaches or has attached, and those that
	// it detaches.
	attaching, detaching map[string]bool
}

func newBare(ctx context.Context, w *world, finalized bool) (*bare, error) {
	client, err := w.unlimited()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &bare{
		w: w, client: client, finalized: finalized, cancel: cancel, slots: make(chan struct{}, bareAtOnce), failed: make(chan error, 1),
		gate: make(chan struct{}), attaching: map[string]bool{}, detaching: map[string]bool{},
	}
	close(b.gate)
	list, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		cancel()
		return nil, err
	}
	watched, err := follow(ctx, client, list.ResourceVersion)
	if err != nil {
		cancel()
		return nil, err
	}
	b.all.Go(func() {
		defer watched.Stop()
		b.follow(ctx, watched)
	})
	return b, nil
}

func (b *bare) follow(ctx context.Context, watched watch.Interface) {
	for {
		select {
		case e, open := <-watched.ResultChan():
			if !open {
				return
			}
			b.take(ctx, e)
		case <-ctx.Done():
			return
		}
	}
}

func (b *bare) take(ctx context.Context, e watch.Event) {
	va, ok := e.Object.(*storage.VolumeAttachment)
	if !ok {
		return
	}
	work, mine := b.attach, b.attaching
	if va.DeletionTimestamp != nil {
		work, mine = b.detach, b.detaching
	}
	b.mu.Lock()
	gate, known := b.gate, mine[va.Name]
	mine[va.Name] = true
	b.mu.Unlock()
	if known || e.Type == watch.Deleted {
		return
	}
	select {
	case <-gate:
	case <-ctx.Done():
		return
	}
	b.slots <- struct{}{}
	b.all.Go(func() {
		defer func() { <-b.slots }()
		if err := work(ctx, va); err != nil && ctx.Err() == nil {
			select {
			case b.failed <- err:
			default:
			}
			b.cancel()
		}
	})
}

func (b *bare) attach(ctx context.Context, va *storage.VolumeAttachment) error {
	volume, attachments := *va.Spec.Source.PersistentVolumeName, b.client.StorageV1().VolumeAttachments()
	pv, err := b.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !b.finalized {
		patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/finalizers","value":["kubernetes.io/pv-protection"]},{"op":"add","path":"/metadata/finalizers/-","value":%q}]`, finalizer)
		if _, err := b.client.CoreV1().PersistentVolumes().Patch(ctx, volume, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"annotations":{"csi.alpha.kubernetes.io/node-id":%q}}}`, finalizer, va.Spec.NodeName)
	if _, err := attachments.Patch(ctx, va.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := csi.NewControllerClient(b.w.conn).ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: va.Spec.NodeName,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
	}); err != nil {
		return err
	}
	_, err = attachments.Patch(ctx, va.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
	return err
}

func (b *bare) detach(ctx context.Context, va *storage.VolumeAttachment) error {
	pv, err := b.client.CoreV1().PersistentVolumes().Get(ctx, *va.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, err := csi.NewControllerClient(b.w.conn).ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: va.Spec.NodeName,
	}); err != nil {
		return err
	}
	_, err = b.client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}

func (b *bare) pause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = make(chan struct{})
	return nil
}

func (b *bare) resume() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.gate)
	return nil
}

// cpu is not known: the client is part of this process.
func (b *bare) cpu() (time.Duration, error) { return 0, nil }

func (b *bare) stop() error {
	b.cancel()
	b.all.Wait()
	select {
	case err := <-b.failed:
		return err
	default:
		return nil
	}
}
