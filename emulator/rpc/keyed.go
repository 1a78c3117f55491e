package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Keyed is a set of read-write locks, one for every string. The locks are fair:
// who asked first gets first, so that readers that keep coming cannot starve a
// writer. Keys that nobody holds or waits for take no memory, and different
// keys never wait for each other.
//
// The zero value is ready to use. A Keyed must not be copied after its first
// use. It knows no owners: to lock a key twice in one goroutine is a deadlock
// until the context ends.
type Keyed struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

// keyLock is the state of one key that is held or waited for.
type keyLock struct {
	// readers counts shared holders; -1 is an exclusive one.
	readers int
	// first and last are the queue; everybody in it waits.
	first, last *waiter
}

// waiter is one call in the queue of a key.
type waiter struct {
	shared     bool
	granted    bool // guarded by Keyed.mu
	ready      chan struct{}
	next, prev *waiter
}

// Lock waits until nobody else holds the key. The error is that of the context,
// wrapped. To call unlock more than once is harmless.
func (k *Keyed) Lock(ctx context.Context, key string) (unlock func(), err error) {
	return k.lock(ctx, key, false)
}

// RLock waits until the key is held by readers only, or by nobody. It is
// otherwise like Lock.
func (k *Keyed) RLock(ctx context.Context, key string) (unlock func(), err error) {
	return k.lock(ctx, key, true)
}

// TryLock takes the key if nobody holds it. It never waits.
func (k *Keyed) TryLock(key string) (unlock func(), ok bool) { return k.try(key, false) }

// TryRLock takes the key with other readers, if no writer holds it or waits for
// it. It never waits.
func (k *Keyed) TryRLock(key string) (unlock func(), ok bool) { return k.try(key, true) }

// Len returns how many keys are held or waited for.
func (k *Keyed) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}

func (k *Keyed) lock(ctx context.Context, key string, shared bool) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	k.mu.Lock()
	l := k.get(key)
	if l.take(shared) {
		k.mu.Unlock()
		return k.unlocker(key, shared), nil
	}
	w := &waiter{shared: shared, ready: make(chan struct{})}
	l.push(w)
	k.mu.Unlock()

	select {
	case <-w.ready:
		return k.unlocker(key, shared), nil
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.granted {
		k.release(key, shared)
	} else {
		l.remove(w)
		// Those behind a writer that gave up may share with the holders.
		k.settle(key, l)
	}
	return nil, fmt.Errorf("lock %s: %w", key, ctx.Err())
}

func (k *Keyed) try(key string, shared bool) (func(), bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.get(key)
	if !l.take(shared) {
		return nil, false
	}
	return k.unlocker(key, shared), true
}

// get returns the state of a key, with k.mu held. A new one is idle: the caller
// takes it or queues at once.
func (k *Keyed) get(key string) *keyLock {
	l := k.keys[key]
	if l == nil {
		if k.keys == nil {
			k.keys = map[string]*keyLock{}
		}
		l = &keyLock{}
		k.keys[key] = l
	}
	return l
}

func (k *Keyed) unlocker(key string, shared bool) func() {
	var done atomic.Bool
	return func() {
		if done.Swap(true) {
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.release(key, shared)
	}
}

// release gives one hold back, with k.mu held.
func (k *Keyed) release(key string, shared bool) {
	l := k.keys[key]
	if shared {
		l.readers--
	} else {
		l.readers = 0
	}
	k.settle(key, l)
}

// settle lets those at the head of the queue in, and forgets an idle key.
func (k *Keyed) settle(key string, l *keyLock) {
	for w := l.first; w != nil && l.free(w.shared); w = l.first {
		l.remove(w)
		l.hold(w.shared)
		w.granted = true
		close(w.ready)
	}
	if l.readers == 0 && l.first == nil {
		delete(k.keys, key)
	}
}

// take holds the key at once if nobody is in the way, neither a holder nor
// somebody who waits longer.
func (l *keyLock) take(shared bool) bool {
	if l.first != nil || !l.free(shared) {
		return false
	}
	l.hold(shared)
	return true
}

func (l *keyLock) free(shared bool) bool {
	return l.readers == 0 || shared && l.readers > 0
}

func (l *keyLock) hold(shared bool) {
	if shared {
		l.readers++
	} else {
		l.readers = -1
	}
}

func (l *keyLock) push(w *waiter) {
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *keyLock) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}
