package attacher

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// pool is a queue of names with so many workers that are made when there is work.
// Attaches and detaches have one each: a burst of detaches, which are slow while a
// node is drained, does not hold up attaches (kubernetes-csi/external-attacher#761).
type pool struct {
	queue workqueue.TypedRateLimitingInterface[string]
	slots chan struct{}
}

func newPool(name string, workers int, first, last time.Duration, metrics workqueue.MetricsProvider) *pool {
	return &pool{
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: name, MetricsProvider: metrics}),
		slots: make(chan struct{}, workers),
	}
}

// run works until the queue is shut down, and what was begun has ended. After ctx
// nothing is begun.
func (p *pool) run(ctx context.Context, work func(name string)) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		p.slots <- struct{}{}
		name, ended := p.queue.Get()
		if ended {
			<-p.slots
			return
		}
		working.Go(func() {
			defer func() { <-p.slots }()
			defer p.queue.Done(name)
			if ctx.Err() == nil {
				work(name)
			}
		})
	}
}

// result has a name tried again later if it failed, else forgets its failures.
func (p *pool) result(name string, err error) {
	if err != nil {
		p.queue.AddRateLimited(name)
		return
	}
	p.queue.Forget(name)
}

// busy are the names that somebody works on. Two pools may come to one name, as
// when a VolumeAttachment is deleted while it is attached: the second waits its turn
// in the queue and not in a worker.
type busy struct {
	mu    sync.Mutex
	names map[string]bool // true: somebody came meanwhile
}

// begin reports whether a name is free, and takes it.
func (b *busy) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.names[name]; taken {
		b.names[name] = true
		return false
	}
	b.names[name] = false
	return true
}

// end gives a name back, and reports whether somebody came meanwhile.
func (b *busy) end(name string) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	again = b.names[name]
	delete(b.names, name)
	return again
}

// has reports whether somebody works on a name.
func (b *busy) has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, taken := b.names[name]
	return taken
}

// forced are the names to be worked on although their record says that it is done.
type forced struct {
	mu    sync.Mutex
	names map[string]bool
}

func (f *forced) add(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[name] = true
}

// take reports whether a name is forced, and forgets it.
func (f *forced) take(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := f.names[name]
	delete(f.names, name)
	return is
}
