package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// undoTime bounds what is undone after the walk was interrupted or failed.
const undoTime = 30 * time.Second

// undo holds what was made and not yet taken away, the newest last.
type undo struct {
	entries []*entry
}

// entry takes one thing away.
type entry struct {
	what string
	call func(context.Context) error
}

// add remembers how to take away what a step is about to make.
func (u *undo) add(what string, call func(context.Context) error) *entry {
	e := &entry{what, call}
	u.entries = append(u.entries, e)
	return e
}

// now takes e away; if that fails it stays to be tried at the end.
func (u *undo) now(ctx context.Context, e *entry) error {
	if err := e.call(ctx); err != nil {
		return err
	}
	for i, other := range u.entries {
		if other == e {
			u.entries = append(u.entries[:i:i], u.entries[i+1:]...)
			break
		}
	}
	return nil
}

// all takes everything away, the newest first, even when ctx has ended, and
// goes on after errors.
func (u *undo) all(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for len(u.entries) > 0 {
		e := u.entries[len(u.entries)-1]
		u.entries = u.entries[:len(u.entries)-1]
		if err := e.call(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", e.what, err))
		}
	}
	return errors.Join(errs...)
}
