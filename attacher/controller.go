package attacher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/kube"
)

// byPV is the index of attachments by their volume.
const byPV = "pv"

// controller does the work of one Run.
type controller struct {
	Config
	name   string // of the driver
	log    *slog.Logger
	driver *driver.Driver
	csi    csi.ControllerClient
	keeper keeper

	attachments, volumes, nodes cache.SharedIndexInformer
	// These are the same with the answers to our own writes.
	latestAttachments *kube.Latest[*attachment]
	latestVolumes     *kube.Latest[*volume]

	attaching, detaching, finalizers *pool
	busy                             busy
	forced                           forced
	writes                           chan struct{}
	// can is what the driver can do; nil while it is away.
	can atomic.Pointer[abilities]
	// known is closed when the driver has said so for the first time.
	known     chan struct{}
	knownOnce sync.Once
	// failed has the error that ends the work.
	failed chan error
}

func newController(c Config, d *driver.Driver, name string, log *slog.Logger) (*controller, error) {
	ctl := &controller{
		Config: c, name: name, log: log, driver: d, csi: csi.NewControllerClient(d.Conn()),
		keeper: keeper{name, finalizerOf(name), csitrans.New(), klog.Background()},
		busy:   busy{names: map[string]bool{}}, forced: forced{names: map[string]bool{}},
		writes: make(chan struct{}, c.Writes), failed: make(chan error, 1), known: make(chan struct{}),
	}
	if err := ctl.makeCaches(); err != nil {
		return nil, err
	}
	ctl.latestAttachments = kube.NewLatest(lookup[*attachment](ctl.attachments), (*attachment).version)
	ctl.latestVolumes = kube.NewLatest(lookup[*volume](ctl.volumes), (*volume).version)
	queues, err := kube.NewQueueMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	ctl.attaching = newPool("csi-attacher-attach", c.Workers, c.RetryStart, c.RetryMax, queues)
	ctl.detaching = newPool("csi-attacher-detach", c.Workers, c.RetryStart, c.RetryMax, queues)
	ctl.finalizers = newPool("csi-attacher-pv", c.Writes, c.RetryStart, c.RetryMax, queues)
	return ctl, nil
}

func (c *controller) makeCaches() (err error) {
	link := &kube.Link{Log: c.log, Rights: "testdata/rbac/attacher.yaml"}
	c.Status.watches(link)
	c.attachments, err = kube.NewInformer(kube.InformerConfig[*storagev1.VolumeAttachmentList]{
		Client: c.Client, Resource: c.Client.StorageV1().VolumeAttachments(), Example: &storagev1.VolumeAttachment{}, Link: link,
		Keep: c.keeper.keep, Resync: c.Resync,
		Indexers: cache.Indexers{byPV: func(object any) ([]string, error) {
			if a, is := object.(*attachment); is && a.hasPV {
				return []string{a.pv}, nil
			}
			return nil, nil
		}},
	})
	if err != nil {
		return err
	}
	c.volumes, err = kube.NewInformer(kube.InformerConfig[*corev1.PersistentVolumeList]{
		Client: c.Client, Resource: c.Client.CoreV1().PersistentVolumes(), Example: &corev1.PersistentVolume{}, Link: link,
		Keep: c.keeper.keep, Resync: c.Resync,
	})
	if err != nil {
		return err
	}
	c.nodes, err = kube.NewInformer(kube.InformerConfig[*storagev1.CSINodeList]{
		Client: c.Client, Resource: c.Client.StorageV1().CSINodes(), Example: &storagev1.CSINode{}, Link: link,
		Keep: c.keeper.keep,
	})
	return err
}

// lookup looks an object up in a cache, if it is one of this driver.
func lookup[T any](informer cache.SharedIndexInformer) func(name string) (T, bool) {
	store := informer.GetIndexer()
	return func(name string) (T, bool) {
		object, _, _ := store.GetByKey(name) // of memory: no error
		is, ok := object.(T)
		return is, ok
	}
}

// run works until ctx ends, and returns why else it ended.
func (c *controller) run(ctx context.Context) error {
	unregister, err := c.countPending()
	if err != nil {
		return err
	}
	defer unregister()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching.Go(func() { c.watchDriver(ctx) })
	watching.Go(func() {
		select {
		case err := <-c.failed:
			cancel(err)
		case <-ctx.Done():
		}
	})
	if err := c.handleEvents(); err != nil {
		return err
	}
	var filled []cache.DoneChecker
	for _, informer := range []cache.SharedIndexInformer{c.attachments, c.volumes, c.nodes} {
		watching.Go(func() { informer.RunWithContext(ctx) })
		filled = append(filled, informer.HasSyncedChecker())
	}
	if cache.WaitFor(ctx, "caches of the attacher", filled...) && c.knows(ctx) {
		c.Status.works(true)
		c.work(ctx)
		c.Status.works(false)
	} else {
		c.shutDown()
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrOtherDriver) {
		return cause
	}
	return nil
}

// knows waits until it is known what the driver can do, or ctx ends.
func (c *controller) knows(ctx context.Context) bool {
	select {
	case <-c.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// work runs the pools until ctx ends, and then as long as what was begun takes, but
// no longer than Grace. Without the lease nothing may go on.
func (c *controller) work(ctx context.Context) {
	calls, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var working sync.WaitGroup
	for p, do := range map[*pool]func(context.Context, string){
		c.attaching: c.attachOne, c.detaching: c.detachOne, c.finalizers: c.finalizeOne,
	} {
		working.Go(func() { p.run(ctx, func(name string) { do(calls, name) }) })
	}
	if c.ReconcilePeriod > 0 {
		working.Go(func() { c.reconcileAlways(ctx) })
	}
	<-ctx.Done()
	c.shutDown()
	grace := c.Grace
	if errors.Is(context.Cause(ctx), ErrLeaseLost) {
		grace = 0
	}
	defer time.AfterFunc(grace, giveUp).Stop()
	working.Wait()
}

func (c *controller) shutDown() {
	c.attaching.queue.ShutDown()
	c.detaching.queue.ShutDown()
	c.finalizers.queue.ShutDown()
}
