// Package pause waits, and ends with the context: once, or with pauses that double
// from one failure to the next.
package pause

import (
	"context"
	"time"
)

// For waits for t, or until ctx ends, whose error it returns then.
func For(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Doubling is a pause that doubles from First up to Most. It is for one goroutine.
type Doubling struct {
	First, Most time.Duration
	next        time.Duration
}

// Next is the pause that is due; the one after it is twice as long.
func (d *Doubling) Next() time.Duration {
	now := max(d.next, d.First)
	d.next = min(2*now, d.Most)
	return now
}

// Reset begins again with First.
func (d *Doubling) Reset() { d.next = 0 }

// Begun reports whether there was a pause since the beginning or Reset.
func (d *Doubling) Begun() bool { return d.next > 0 }

// Wait waits for the next pause, or until ctx ends, whose error it returns then.
func (d *Doubling) Wait(ctx context.Context) error { return For(ctx, d.Next()) }
