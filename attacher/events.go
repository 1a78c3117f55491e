package attacher

import (
	"errors"

	"k8s.io/client-go/tools/cache"
)

// handleEvents has the caches tell of what may be work.
func (c *controller) handleEvents() error {
	_, err1 := c.attachments.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.attachmentChanged(nil, object) },
		UpdateFunc: c.attachmentChanged,
		DeleteFunc: c.attachmentGone,
	})
	_, err2 := c.volumes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { c.volumeChanged(object, !initial) },
		UpdateFunc: func(_, object any) { c.volumeChanged(object, false) },
		DeleteFunc: c.volumeGone,
	})
	_, err3 := c.nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { c.nodeChanged(nil, object, initial) },
		UpdateFunc: func(old, object any) { c.nodeChanged(old, object, false) },
	})
	return errors.Join(err1, err2, err3)
}

// enqueue puts an attachment in the queue where it belongs.
func (c *controller) enqueue(a *attachment) {
	if a.deleting {
		c.detaching.queue.Add(a.name)
	} else {
		c.attaching.queue.Add(a.name)
	}
}

func (c *controller) attachmentChanged(old, object any) {
	a, ours := object.(*attachment)
	if !ours {
		return
	}
	c.latestAttachments.Saw(a.name)
	was, known := old.(*attachment)
	resynced := known && was.resourceVersion == a.resourceVersion
	if a.wants() && (!known || resynced || a.stirs(was)) {
		c.enqueue(a)
	}
}

func (c *controller) attachmentGone(object any) {
	a, ours := lastState(object).(*attachment)
	if !ours {
		return
	}
	c.latestAttachments.Saw(a.name)
	c.attaching.queue.Forget(a.name)
	c.detaching.queue.Forget(a.name)
	c.forced.take(a.name)
	if v, ok := c.latestVolumes.Get(a.pv); ok {
		c.considerFinalizer(v)
	}
}

// volumeChanged has attachments tried at once that came before their volume.
func (c *controller) volumeChanged(object any, added bool) {
	v, ours := object.(*volume)
	if !ours {
		return
	}
	c.latestVolumes.Saw(v.name)
	c.considerFinalizer(v)
	if added {
		for _, a := range c.attachmentsOf(v.name) {
			if a.wants() {
				c.enqueue(a)
			}
		}
	}
}

func (c *controller) volumeGone(object any) {
	if v, ours := lastState(object).(*volume); ours {
		c.latestVolumes.Saw(v.name)
	}
}

// nodeChanged has attachments tried at once that came before the driver on their
// node.
func (c *controller) nodeChanged(old, object any, initial bool) {
	n, has := object.(*node)
	was, had := old.(*node)
	if !has || initial || (had && was.id == n.id) {
		return
	}
	c.retry(func(a *attachment) bool { return a.node.Value() == n.name })
}

// retry has attachments tried at once that want something.
func (c *controller) retry(which func(*attachment) bool) {
	for _, object := range c.attachments.GetIndexer().List() {
		if a, ours := object.(*attachment); ours && a.wants() && which(a) {
			c.attaching.queue.Forget(a.name)
			c.detaching.queue.Forget(a.name)
			c.enqueue(a)
		}
	}
}

// attachmentsOf are the attachments of a volume.
func (c *controller) attachmentsOf(pv string) []*attachment {
	objects, _ := c.attachments.GetIndexer().ByIndex(byPV, pv) // the index exists
	var all []*attachment
	for _, object := range objects {
		if a, ours := object.(*attachment); ours {
			all = append(all, a)
		}
	}
	return all
}

// lastState is the last state of an object that is gone, as far as the cache knows.
func lastState(object any) any {
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		return unknown.Obj
	}
	return object
}
