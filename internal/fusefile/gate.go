//go:build linux

package fusefile

import (
	"context"
	"sync"
	"syscall"
	"time"
)

// gate is what writes pass, and what can be shut for them. The zero value is
// open.
type gate struct {
	mu     sync.Mutex
	shut   int // how many pauses there are
	inside int // how many writes are under way
	// drained is true when the gate cannot be shut any more.
	drained bool
	pauses  map[*pause]bool
	// changed is closed at the next change that somebody may wait for; nil while
	// nobody waits.
	changed chan struct{}
}

// pause is one reason for the gate to be shut. It is safe for concurrent use.
type pause struct {
	gate  *gate
	timer *time.Timer
	once  sync.Once
	// expired is written within once.
	expired bool
}

// wait returns a channel for the next change. The caller holds mu.
func (g *gate) wait() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

func (g *gate) change() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// enter waits until the gate is open. leave is to be called then.
func (g *gate) enter(cancel <-chan struct{}) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut > 0 {
		changed := g.wait()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-cancel:
			g.mu.Lock()
			return syscall.EINTR
		}
		g.mu.Lock()
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 {
		g.change()
	}
}

// pause shuts the gate, for no longer than limit, and returns when no write is
// under way.
func (g *gate) pause(ctx context.Context, limit time.Duration) (*pause, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drained {
		return nil, ErrStopping
	}
	p := &pause{gate: g}
	g.shut++
	if g.pauses == nil {
		g.pauses = map[*pause]bool{}
	}
	g.pauses[p] = true
	for g.inside > 0 {
		changed := g.wait()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			p.end(false)
			g.mu.Lock()
			return nil, ctx.Err()
		}
		g.mu.Lock()
	}
	// Counted from when writers begin to wait for nothing but the caller.
	p.timer = time.AfterFunc(limit, func() { p.end(true) })
	return p, nil
}

// end opens the gate, unless another pause keeps it shut.
func (p *pause) end(expired bool) {
	p.once.Do(func() {
		p.expired = expired
		p.gate.mu.Lock()
		defer p.gate.mu.Unlock()
		if p.timer != nil {
			p.timer.Stop()
		}
		delete(p.gate.pauses, p)
		p.gate.shut--
		p.gate.change()
	})
}

// resume is end, and reports whether the pause had ended by itself before.
func (p *pause) resume() (expired bool) {
	p.end(false)
	return p.expired
}

// drain opens the gate for good.
func (g *gate) drain() {
	g.mu.Lock()
	g.drained = true
	var pauses []*pause
	for p := range g.pauses {
		pauses = append(pauses, p)
	}
	g.mu.Unlock()
	for _, p := range pauses {
		p.end(true)
	}
}
