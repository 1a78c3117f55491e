package attacher

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// protect puts our finalizer on a volume that is being attached: until it is
// detached everywhere it is not deleted.
func (c *controller) protect(ctx context.Context, v *volume) error {
	if v.finalizers.has(c.keeper.finalizer) {
		return nil
	}
	if err := c.patchVolume(ctx, v.name, kube.Metadata{Add: []string{c.keeper.finalizer}}); err != nil {
		return fmt.Errorf("put the finalizer %s on PersistentVolume %q: %w", c.keeper.finalizer, v.name, err)
	}
	return nil
}

// done reports whether a volume needs our finalizer no more once it is detached: it
// is to be deleted, or is one of the tree that is not migrated to this driver (any
// more).
func (c *controller) done(v *volume) bool {
	return v.finalizers.has(c.keeper.finalizer) && (v.deleting || (v.inTree && v.migratedTo.Value() != c.name))
}

// considerFinalizer has a volume looked at that may be done.
func (c *controller) considerFinalizer(v *volume) {
	if c.done(v) {
		c.finalizers.queue.Add(v.name)
	}
}

// finalizeOne takes our finalizer from a volume that is done and attached nowhere.
func (c *controller) finalizeOne(ctx context.Context, name string) {
	v, ok := c.latestVolumes.Get(name)
	if !ok || !c.done(v) || len(c.attachmentsOf(name)) > 0 {
		c.finalizers.result(name, nil)
		return
	}
	err := c.patchVolume(ctx, name, kube.Metadata{Remove: []string{c.keeper.finalizer}})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn("could not take the finalizer from a PersistentVolume", "volume", name, "error", err)
	}
	c.finalizers.result(name, err)
}
