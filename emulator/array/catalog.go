package array

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csiemu/csiemu/backends"
)

// object is a volume or snapshot.
type object interface {
	key() (id, name string, seq uint64)
	listed() bool
}

func (v *Volume) key() (id, name string, seq uint64)   { return v.ID, v.Name, v.Seq }
func (v *Volume) listed() bool                         { return v.State == Ready }
func (s *Snapshot) key() (id, name string, seq uint64) { return s.ID, s.Name, s.Seq }
func (s *Snapshot) listed() bool                       { return s.State == Ready }
func (g *Group) key() (id, name string, seq uint64)    { return g.ID, g.Name, g.Seq }
func (g *Group) listed() bool                          { return g.State == Ready }

// catalog finds objects by id and name and lists them in the order of their
// making. Objects in it are never changed, only replaced.
type catalog[T object] struct {
	mu     sync.RWMutex
	byID   map[string]T
	byName map[string]T
	// order is sorted by sequence number.
	order []T
	last  uint64
}

func newCatalog[T object]() *catalog[T] {
	return &catalog[T]{byID: map[string]T{}, byName: map[string]T{}}
}

// next gives out a sequence number that is higher than all before. It follows
// the clock, so that the number of a deleted object does not come back after a
// restart, but never goes back with it.
func (c *catalog[T]) next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, uint64(time.Now().UnixNano()))
	return c.last
}

func (c *catalog[T]) get(id string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	o, ok := c.byID[id]
	return o, ok
}

func (c *catalog[T]) named(name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	o, ok := c.byName[name]
	return o, ok
}

// put adds an object or replaces the one with the same id.
func (c *catalog[T]) put(o T) {
	id, name, seq := o.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id], c.byName[name] = o, o
	c.last = max(c.last, seq)
	if i, found := c.search(seq); found {
		c.order[i] = o
	} else {
		c.order = slices.Insert(c.order, i, o)
	}
}

func (c *catalog[T]) remove(o T) {
	id, name, seq := o.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
	delete(c.byName, name)
	if i, found := c.search(seq); found {
		c.order = slices.Delete(c.order, i, i+1)
	}
}

func (c *catalog[T]) search(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(c.order, seq, func(o T, seq uint64) int {
		_, _, have := o.key()
		switch {
		case have < seq:
			return -1
		case have > seq:
			return 1
		}
		return 0
	})
}

func (c *catalog[T]) all() []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.order)
}

// tokenPrefix marks our page tokens: they are the sequence number of the last
// object of a page, so that they stay right when objects come and go.
const tokenPrefix = "after-"

// tokenAfter is the token of the page that begins behind an object.
func tokenAfter(o object) string {
	_, _, seq := o.key()
	return tokenPrefix + strconv.FormatUint(seq, 10)
}

// page returns the objects that match and come after the token, at most limit
// of them (0 means all), and the token of the next page if there is one.
func (c *catalog[T]) page(token string, limit int, match func(T) bool) ([]T, string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	start := 0
	if token != "" {
		digits, ours := strings.CutPrefix(token, tokenPrefix)
		seq, err := strconv.ParseUint(digits, 10, 64)
		if !ours || err != nil || seq > c.last {
			return nil, "", fmt.Errorf("list from token %q: it is none of this array's; list from the start: %w", token, backends.ErrAborted)
		}
		i, found := c.search(seq)
		if found {
			i++
		}
		start = i
	}
	var out []T
	for _, o := range c.order[start:] {
		if !o.listed() || !match(o) {
			continue
		}
		if limit > 0 && len(out) == limit {
			return out, tokenAfter(out[len(out)-1]), nil
		}
		out = append(out, o)
	}
	return out, "", nil
}
