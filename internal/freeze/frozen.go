//go:build linux

package freeze

import (
	"errors"
	"fmt"
	"sync"
)

// Frozen is a file system that is held still. It is safe for concurrent use.
type Frozen struct {
	dir    string
	link   *link
	ticket *ticket
	once   sync.Once
	err    error
}

// Expired is closed when the file system was thawed without Thaw, so that a copy
// under way can stop: Thaw will return ErrExpired. Nobody holds a descriptor of
// the file system any more then.
func (z *Frozen) Expired() <-chan struct{} { return z.ticket.expired }

// Thaw lets writers go on. When it returns, neither this process nor the
// watchdog holds a descriptor of the file system, so that it can be unmounted.
// ErrExpired means that it was not frozen until now. Calling Thaw again gives
// the same result. On a device that hangs, Thaw hangs too.
func (z *Frozen) Thaw() error {
	z.once.Do(func() {
		if early := z.link.end(z.ticket); early {
			z.err = fmt.Errorf("thaw %s: %w", z.dir, errors.Join(ErrExpired, z.ticket.err))
		}
	})
	return z.err
}
