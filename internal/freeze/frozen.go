//go:build linux

package freeze

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Frozen is a file system that is held still. It is safe for concurrent use.
type Frozen struct {
	dir   string
	root  *os.File
	link  *link
	guard *guarded

	mu sync.Mutex
	// done is closed when the file system is thawed and nobody holds it.
	done chan struct{}
	err  error
}

// Expired is closed when the file system was thawed before Thaw was called, so
// that a copy under way can stop: Thaw will return ErrExpired.
func (z *Frozen) Expired() <-chan struct{} { return z.guard.expired }

// Thaw lets writers go on. When it returns, neither this process nor the
// watchdog holds a descriptor of the file system, so that it can be unmounted.
// ErrExpired means that it was not frozen until now. Calling Thaw again gives
// the same result. After any other error the file system may be frozen still:
// Thaw can be tried again, and the watchdog does so when the limit passes.
func (z *Frozen) Thaw() error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.isDone() {
		return z.err
	}
	err := thawRoot(z.root)
	early := errors.Is(err, unix.EINVAL)
	if err != nil && !early {
		return fmt.Errorf("thaw %s: %w", z.dir, err)
	}
	if z.link.release(z.guard) {
		early = true
	}
	z.finish(early)
	return z.err
}

// stayGuarded returns when the file system is thawed. If the watchdog dies
// before, it thaws at once.
func (z *Frozen) stayGuarded() {
	select {
	case <-z.done:
		return
	case <-z.link.dead:
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.isDone() {
		return
	}
	// An error means that the watchdog thawed as its last deed, or that nobody
	// can.
	err := thawRoot(z.root)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		z.err = fmt.Errorf("thaw %s: %w", z.dir, err)
	}
	z.guard.expire()
	z.finish(true)
}

// finish gives up the file system; the caller holds mu.
func (z *Frozen) finish(early bool) {
	if early {
		z.err = errors.Join(z.err, fmt.Errorf("thaw %s: %w", z.dir, ErrExpired))
	}
	z.err = errors.Join(z.err, closeAndSettle(z.root))
	close(z.done)
}

func (z *Frozen) isDone() bool {
	select {
	case <-z.done:
		return true
	default:
		return false
	}
}
