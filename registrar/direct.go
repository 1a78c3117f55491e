package registrar

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/pause"
)

const (
	// writeGap is the least time between two looks at what is written, so that
	// somebody who undoes it at once cannot keep the API server busy.
	writeGap = 200 * time.Millisecond
	// endWithin bounds taking the registration back after the end of Run's context.
	endWithin = 10 * time.Second
)

// direct keeps the driver registered with the API server, in the place of a kubelet
// and by its rules (nodeinfomanager and csiNodeUpdater of Kubernetes 1.37).
type direct struct {
	c      Config
	driver *driver.Driver
	report *reporter
	// kick has a value after an object changed.
	kick *mailbox[struct{}]

	// id is the driver that is written, or to be. former are those that it was
	// before and whose entries are still to be taken back.
	id     identity
	former []string
	// drivers are the CSIDriver objects, for the period of the refresh.
	drivers cache.Store
	// retry is the pause after a failure.
	retry pause.Doubling
}

// run writes the registration until ctx ends, and takes it back.
func (d *direct) run(ctx context.Context, ids <-chan identity) (err error) {
	stop, err := d.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer func() {
		if d.id.Name == "" {
			return
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		d.former = append(d.former, d.id.Name)
		if left := d.leaveFormer(end); left != nil {
			err = fmt.Errorf("end the registration on node %s: %w", d.c.Direct.NodeName, left)
		}
		d.report.problem(partRegistration, nil, func(s *State) { s.Registered = false })
	}()
	d.retry = pause.Doubling{First: time.Second, Most: time.Minute}
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	refresh := &period{}
	defer refresh.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-ids:
			if d.id.Name != "" && d.id.Name != id.Name {
				d.c.Log.Info("the driver came back with another name", "before", d.id.Name, "driver", id.Name)
				d.former = append(d.former, d.id.Name)
			}
			d.id = id
		case <-refresh.due():
			if !d.refresh(ctx) {
				continue
			}
		case <-d.kick.c:
		case <-again.C:
		}
		if d.id.Name == "" {
			continue
		}
		refresh.every(d.updatePeriod())
		again.Stop()
		if err := d.ensure(ctx); err != nil && ctx.Err() == nil {
			d.report.problem(partRegistration, err, func(s *State) { s.Registered = false })
			again.Reset(d.retry.Next())
		} else if ctx.Err() == nil {
			d.retry.Reset()
			d.report.problem(partRegistration, nil, func(s *State) {
				s.Registered = s.Driver == d.id.Name && s.isNode(d.id.node) // it may be another one by now
			})
		}
		if pause.For(ctx, writeGap) != nil {
			return nil
		}
	}
}

// refresh asks the driver for its limit again and reports whether it answered.
func (d *direct) refresh(ctx context.Context) bool {
	info, err := nodeInfo(ctx, d.driver)
	if err != nil {
		d.c.Log.Warn("the volume limit is not refreshed", "driver", d.id.Name, "error", err)
		return false
	}
	d.id.node = info
	d.report.node(info)
	return true
}

// ensure writes what is missing, in the order of the kubelet: first the Node, which
// holds the topology that schedulers compare, then the CSINode.
func (d *direct) ensure(ctx context.Context) error {
	if err := d.leaveFormer(ctx); err != nil {
		return err
	}
	node, err := d.ensureNode(ctx)
	if err != nil {
		return err
	}
	return d.ensureCSINode(ctx, node)
}

// watch has kick told of the Node, its CSINode and the CSIDriver objects.
func (d *direct) watch(ctx context.Context) (stop func(), err error) {
	kick := func() { d.kick.put(struct{}{}) }
	own := "metadata.name=" + d.c.Direct.NodeName
	w := newWatches(d.c)
	watch(w, d.c.Client.CoreV1().Nodes(), &corev1.Node{}, own, d.nodeDiffers, kick)
	watch(w, d.c.Client.StorageV1().CSINodes(), &storagev1.CSINode{}, own, nil, kick)
	d.drivers = watch(w, d.c.Client.StorageV1().CSIDrivers(), &storagev1.CSIDriver{}, "", nil, kick)
	return w.start(ctx)
}

// nodeDiffers reports whether a change of the Node could concern the registration;
// its heartbeats do not.
func (d *direct) nodeDiffers(before, after any) bool {
	a, isNode := before.(*corev1.Node)
	b, isToo := after.(*corev1.Node)
	if !isNode || !isToo {
		return true
	}
	key := corev1.ResourceName(LegacyLimitKey(d.report.now().Driver))
	return a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!a.Status.Capacity[key].Equal(b.Status.Capacity[key]) || !a.Status.Allocatable[key].Equal(b.Status.Allocatable[key])
}

// updatePeriod is how often the CSIDriver object wants the limit refreshed, 0 for
// never.
func (d *direct) updatePeriod() time.Duration {
	found, exists, err := d.drivers.GetByKey(d.id.Name)
	if err != nil || !exists {
		return 0
	}
	object, is := found.(*storagev1.CSIDriver)
	if !is || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return max(leastPeriod, time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second)
}
