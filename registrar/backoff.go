package registrar

import (
	"context"
	"time"
)

// backoff is a pause that doubles.
type backoff struct {
	first, most time.Duration
	next        time.Duration
}

// pause is the next pause.
func (b *backoff) pause() time.Duration {
	now := max(b.next, b.first)
	b.next = min(2*now, b.most)
	return now
}

// reset begins again with the first pause.
func (b *backoff) reset() { b.next = 0 }

// wait waits for the next pause, or until ctx ends.
func (b *backoff) wait(ctx context.Context) error { return wait(ctx, b.pause()) }

func wait(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
