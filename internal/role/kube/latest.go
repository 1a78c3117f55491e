package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Version says which object and which state of it a value is.
type Version struct {
	// UID differs between two objects of the same name.
	UID string
	// ResourceVersion grows with each change.
	ResourceVersion string
}

// Latest is a view of a cache that has the answers to one's own writes before the
// cache does. Without it a controller that acts on its cache does twice what it
// has just done. It is safe for concurrent use.
type Latest[T any] struct {
	version func(T) Version
	cached  func(name string) (T, bool)
	mu      sync.Mutex
	written map[string]T
}

// NewLatest returns a view of a cache: cached looks an object up there, version
// tells its version.
func NewLatest[T any](cached func(name string) (T, bool), version func(T) Version) *Latest[T] {
	return &Latest[T]{version: version, cached: cached, written: map[string]T{}}
}

// Get is the newest state that is known. An object that the cache does not have
// any more is gone.
func (l *Latest[T]) Get(name string) (T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cached, ok := l.cached(name)
	written, mine := l.written[name]
	if !mine {
		return cached, ok
	}
	if ok && reaches(l.version(written), l.version(cached)) {
		return written, true
	}
	delete(l.written, name)
	return cached, ok
}

// Wrote remembers the answer to a write, until the cache has it too.
func (l *Latest[T]) Wrote(name string, answer T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cached, ok := l.cached(name); ok && reaches(l.version(answer), l.version(cached)) {
		l.written[name] = answer
	}
}

// Saw forgets answers that the cache has. Handlers of the cache's events call it
// for each name that they are told of, after the cache has the event.
func (l *Latest[T]) Saw(name string) { l.Get(name) }

// Len is how many answers are remembered.
func (l *Latest[T]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.written)
}

// reaches reports whether a is a later state of the same object than b, or the same
// one: the answer to a write that ends an object has the version before it. Another
// object of the name may only be older: names are used again one after another.
func reaches(a, b Version) bool {
	if a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order >= 0
}
