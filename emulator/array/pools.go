package array

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/csiemu/csiemu/backends"
)

// PoolParameter is the StorageClass parameter that names a capacity pool.
const PoolParameter = "pool"

// pools keep account of what volumes and snapshots have reserved. A volume
// reserves its whole size, thin or not; a snapshot the bytes that its source
// held at the cut.
type pools struct {
	mu       sync.Mutex
	fallback string
	size     map[string]int64
	reserved map[string]int64
}

func newPools(sizes map[string]int64, fallback string) *pools {
	return &pools{fallback: fallback, size: sizes, reserved: map[string]int64{}}
}

// choose takes the pool out of a class's parameters and returns the rest.
func (p *pools) choose(parameters map[string]string) (pool string, rest map[string]string, err error) {
	pool = p.fallback
	rest = make(map[string]string, len(parameters))
	for k, v := range parameters {
		if k == PoolParameter {
			pool = v
			continue
		}
		rest[k] = v
	}
	if _, ok := p.size[pool]; !ok {
		return "", nil, fmt.Errorf("parameter %s: there is no pool %q, only %q: %w", PoolParameter, pool, p.names(), backends.ErrInvalid)
	}
	return pool, rest, nil
}

func (p *pools) names() []string {
	names := make([]string, 0, len(p.size))
	for n := range p.size {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// reserve takes n bytes from a pool, or returns backends.ErrExhausted.
func (p *pools) reserve(pool string, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if free := p.size[pool] - p.reserved[pool]; n > free {
		return fmt.Errorf("reserve %d bytes in pool %q: %d are left of %d: %w", n, pool, max(free, 0), p.size[pool], backends.ErrExhausted)
	}
	p.reserved[pool] += n
	return nil
}

// adopt counts what is reserved already, even past the size of a pool that was
// made smaller.
func (p *pools) adopt(pool string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved[pool] += n
}

func (p *pools) release(pool string, n int64) { p.adopt(pool, -n) }

func (p *pools) free(pool string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.size[pool]-p.reserved[pool], 0)
}

// Capacity is the answer to a question for space, in bytes.
type Capacity struct {
	Available, Maximum, Minimum int64
}

// Capacity says how much can be provisioned with a request's parameters and
// file systems from a topology segment; nothing where no volume of that kind
// can be made.
func (a *Array) Capacity(ctx context.Context, req backends.Request, segment map[string]string) (Capacity, error) {
	pool, _, rest, err := a.splitParameters(req.Parameters)
	if err != nil {
		return Capacity{}, err
	}
	req.Parameters = rest
	// One byte becomes the smallest volume that the backend makes.
	req.RequiredBytes = 1
	smallest, err := a.layout(req)
	if err != nil {
		return Capacity{}, err
	}
	if segment != nil && !a.reachable(segment) {
		return Capacity{}, nil
	}
	available := a.pools.free(pool)
	if smallest.Thick {
		// What is taken at once cannot be more than the store has.
		free, err := a.backend.FreeBytes(ctx)
		if err != nil {
			return Capacity{}, fmt.Errorf("ask the store of pool %q for its free space: %w", pool, err)
		}
		available = min(available, free)
	}
	c := Capacity{Available: available, Maximum: available, Minimum: smallest.SizeBytes}
	if available < smallest.SizeBytes {
		c.Maximum = 0
	}
	return c, nil
}
