package admin

import (
	"context"
	"sync"
	"time"

	"github.com/csiemu/csiemu/journal"
)

const (
	// soon is the shortest time between two looks at the state: a burst of calls
	// is looked at once.
	soon = 100 * time.Millisecond
	// later is the longest, as not every change comes with a call that ends.
	later = 500 * time.Millisecond
)

// changes yields at once, and then whenever the state may have changed, until ctx
// ends.
func (s *Server) changes(ctx context.Context) func(yield func() bool) {
	return func(yield func() bool) {
		ctx, cancel := context.WithCancel(ctx)
		var follower sync.WaitGroup
		defer follower.Wait()
		defer cancel()
		ended := make(chan struct{}, 1)
		j := s.o.Emulator.Journal()
		after := last(j)
		follower.Go(func() {
			for range j.Follow(ctx, after) {
				select {
				case ended <- struct{}{}:
				default:
				}
			}
		})
		for ctx.Err() == nil && yield() {
			if !wait(ctx, soon, nil) || !wait(ctx, later-soon, ended) {
				return
			}
		}
	}
}

// wait waits for a time, or until something happens; it is false when ctx ended.
func wait(ctx context.Context, d time.Duration, happens <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-happens:
	}
	return true
}

// last is the number of the newest call.
func last(j *journal.Journal) uint64 {
	entries := j.Entries(0)
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Seq
}
