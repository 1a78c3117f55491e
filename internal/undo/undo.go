// Package undo gives clean-ups a context of their own: one that outlives the
// call that failed, since its caller may have gone, but does not last for ever.
package undo

import (
	"context"
	"time"
)

// limit is far more than any clean-up takes.
const limit = time.Minute

// Run runs a clean-up with the values of ctx, but not its end.
func Run(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return f(ctx)
}
