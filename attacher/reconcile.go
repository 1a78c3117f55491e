package attacher

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// reconcileAlways compares what is recorded with what the driver says, until ctx
// ends.
func (c *controller) reconcileAlways(ctx context.Context) {
	tick := time.NewTicker(c.ReconcilePeriod)
	defer tick.Stop()
	for {
		if can := c.can.Load(); can != nil && can.publishes && can.listsNodes {
			if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("could not compare VolumeAttachments with the driver's volumes", "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// listLimit is how long a list of all volumes may take. It has many calls, so the
// limit of one would be too short (kubernetes-csi/external-attacher#599).
func (c *controller) listLimit() time.Duration { return max(c.ReconcilePeriod, c.Timeout) }

// place is a volume on a node, as the driver knows both.
type place struct{ volume, node string }

// reconcile has each attachment worked on again that is recorded as attached and is
// not, or the other way round. Volumes without a VolumeAttachment are left alone.
func (c *controller) reconcile(ctx context.Context) error {
	// What somebody works on now, or changes until the list is there, differs
	// from the list for that reason, and would be published twice.
	before := map[string]string{}
	c.each(func(a *attachment) {
		if !c.busy.has(a.name) {
			before[a.name] = a.resourceVersion
		}
	})
	listing, cancel := context.WithTimeout(ctx, c.listLimit())
	defer cancel()
	published := map[place]bool{}
	err := c.listVolumes(listing, func(e *csi.ListVolumesResponse_Entry) {
		for _, node := range e.GetStatus().GetPublishedNodeIds() {
			published[place{e.GetVolume().GetVolumeId(), node}] = true
		}
	})
	if err != nil {
		return err
	}
	c.each(func(a *attachment) {
		if before[a.name] != a.resourceVersion || c.busy.has(a.name) {
			return
		}
		at, known := c.placeOf(ctx, a)
		if !known || published[at] == a.attached {
			return
		}
		c.log.Warn("what is recorded differs from what the driver says", "attachment", a.name,
			"volume", at.volume, "node", at.node, "recorded", a.attached, "published", published[at])
		c.forced.add(a.name)
		c.enqueue(a)
	})
	return nil
}

// each calls f for each attachment as it is now.
func (c *controller) each(f func(*attachment)) {
	for _, name := range c.attachments.GetIndexer().ListKeys() {
		if a, ours := c.latestAttachments.Get(name); ours {
			f(a)
		}
	}
}

// placeOf is where an attachment attaches what, from the caches alone.
func (c *controller) placeOf(ctx context.Context, a *attachment) (place, bool) {
	s, err := c.find(ctx, a, c.cachedVolume)
	if err != nil {
		return place{}, false
	}
	at := place{s.csi().VolumeHandle, a.nodeID}
	if n, ok := lookup[*node](c.nodes)(a.node.Value()); ok {
		at.node = n.id
	}
	if s.migrated() && at.node != "" {
		// Handles of volumes of the tree may lack what only the node tells.
		at.volume, err = c.keeper.translator.RepairVolumeHandle(c.name, at.volume, at.node)
	}
	return at, err == nil && at.node != ""
}

// cachedVolume is findVolume without a request.
func (c *controller) cachedVolume(_ context.Context, name string) (*volume, error) {
	if v, ok := c.latestVolumes.Get(name); ok {
		return v, nil
	}
	return nil, fmt.Errorf("PersistentVolume %q is not in the cache", name)
}

// listVolumes calls each for each volume of the driver.
func (c *controller) listVolumes(ctx context.Context, each func(*csi.ListVolumesResponse_Entry)) error {
	token := ""
	for {
		call, cancel := context.WithTimeout(ctx, c.Timeout)
		reply, err := c.csi.ListVolumes(call, &csi.ListVolumesRequest{MaxEntries: int32(c.MaxEntries), StartingToken: token})
		cancel()
		if err != nil {
			return fmt.Errorf("list volumes: %w", err)
		}
		for _, e := range reply.GetEntries() {
			if e.GetVolume() != nil {
				each(e)
			}
		}
		if token = reply.GetNextToken(); token == "" {
			return nil
		}
	}
}
