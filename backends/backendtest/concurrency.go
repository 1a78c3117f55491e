package backendtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/csiemu/csiemu/backends"
)

// testConcurrency leads sixteen volumes through their lives at once, on one
// backend and one node.
func testConcurrency(t *testing.T, h Harness) {
	r := newRig(t, h)
	all := h.accesses()
	t.Run("volumes", func(t *testing.T) {
		for i := range 16 {
			a := all[i%len(all)]
			t.Run(fmt.Sprintf("%d, %s", i, a.name), func(t *testing.T) {
				t.Parallel()
				own := *r
				own.t = t
				u := own.use(own.create(a), a)
				for round := range 2 {
					u.up()
					sum := u.write(u.path, fmt.Sprint(u.volume.ID, round))
					u.manyStats()
					u.requireData(u.path, sum)
					u.down()
					copied := own.use(own.volume(u.volume.Layout), a)
					s := own.snapshot(u.volume)
					if err := own.backend.Restore(t.Context(), s, copied.volume); err != nil {
						t.Fatal(err)
					}
					copied.up()
					copied.requireData(copied.path, sum)
					copied.down()
				}
			})
		}
	})
}

// manyStats asks for figures while the volume is published anew, as it may be at
// any time.
func (u *use) manyStats() {
	u.r.t.Helper()
	path := u.path
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if _, err := u.r.node.Stats(u.r.t.Context(), u.staged, path); err != nil {
					u.r.t.Error(err)
				}
			}
		})
	}
	second := u.publish(backends.PublishRequest{})
	u.unpublish(second)
	wg.Wait()
}
