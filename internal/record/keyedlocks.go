package record

import (
	"context"
	"sync"
)

// keyedLocks is a mutex for each key that somebody holds or waits for.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	free  chan struct{} // holds one token while nobody has the lock
	users int
}

// lock waits for the key, or for the end of ctx, and returns its release.
func (k *keyedLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l := k.join(key)
	select {
	case <-l.free:
		return func() {
			l.free <- struct{}{}
			k.leave(key, l)
		}, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, ctx.Err()
	}
}

func (k *keyedLocks) join(key string) *keyedLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = map[string]*keyedLock{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyedLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		k.held[key] = l
	}
	l.users++
	return l
}

func (k *keyedLocks) leave(key string, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.held, key)
	}
}
