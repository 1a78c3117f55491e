package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// undo takes one thing away that a row has made.
type undo struct {
	what string
	call func(context.Context) error
}

// undoLater has something taken away at the end of the row, the newest first.
// What is already on the list stays where it is.
func (c *check) undoLater(what string, call func(context.Context) error) {
	if !slices.ContainsFunc(c.undos, func(u *undo) bool { return u.what == what }) {
		c.undos = append(c.undos, &undo{what, call})
	}
}

// undone says that a row has taken something away itself.
func (c *check) undone(what string) {
	c.undos = slices.DeleteFunc(c.undos, func(u *undo) bool { return u.what == what })
}

// undoAll takes everything away, and goes on after errors.
func (c *check) undoAll() {
	ctx := context.WithoutCancel(c.ctx)
	for len(c.undos) > 0 {
		last := c.undos[len(c.undos)-1]
		c.undos = c.undos[:len(c.undos)-1]
		if err := retry(ctx, last.call); err != nil {
			c.Errorf("take away %s: %v", last.what, err)
			if r, ok := c.T.(*recorder); ok {
				r.left = append(r.left, fmt.Sprintf("%s: %v", last.what, err))
			}
		}
	}
}

// retry calls again for a while as long as the answer may change by itself.
func retry(ctx context.Context, call func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		err := call(ctx)
		switch status.Code(err) {
		case codes.FailedPrecondition, codes.Aborted, codes.Unavailable:
		default:
			return err
		}
		select {
		case <-ticker.C:
		case <-late.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// unclear reports whether a call with this error may have had its effect, or
// have it still.
func unclear(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.Aborted, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// unlessClear is an error that does not say whether something was done; it is nil
// for one that does.
func unlessClear(err error) error {
	if unclear(err) {
		return err
	}
	return nil
}
