//go:build linux

package freeze

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/step"
)

// DefaultLimit is how long a file system stays frozen at most if Options say
// nothing.
const DefaultLimit = 10 * time.Second

var (
	// ErrFrozen is returned when the file system is frozen already, by this
	// process or another.
	ErrFrozen = errors.New("file system is frozen already")
	// ErrExpired is returned when the file system was not frozen until Thaw: the
	// limit passed, the watchdog was killed, or somebody else thawed it. What
	// was cut meanwhile is not consistent.
	ErrExpired = errors.New("file system was thawed before its time")
	// ErrNotMounted is returned when the directory is not where a file system is
	// mounted. To freeze the one that it lies on could stop the whole machine.
	ErrNotMounted = errors.New("no file system is mounted there")
)

// Options of a Freezer. The zero value is ready for use.
type Options struct {
	// Limit is how long a file system stays frozen at most, counted from when
	// the kernel begins to hold writers. A freeze that takes longer itself, as
	// it cannot be interrupted, is undone at once. 0 means DefaultLimit.
	Limit time.Duration
}

// Freezer freezes file systems with the help of one watchdog process. It is safe
// for concurrent use.
type Freezer struct {
	limit time.Duration

	mu     sync.Mutex
	closed bool
	// link leads to the watchdog; nil before first use.
	link *link
	// listeners listen to watchdogs, more than one if one was killed.
	listeners sync.WaitGroup
}

// New makes a Freezer, which costs nothing before its first use. The caller
// closes it.
func New(o Options) *Freezer {
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	return &Freezer{limit: o.Limit}
}

// Freeze flushes the file system mounted at dir and holds all its writers still
// until Thaw. What is dirty when Freeze begins is written before writers are
// held, so that they wait only for what came after.
//
// ErrFrozen and ErrNotMounted are returned as they say; a file system that
// cannot be frozen (tmpfs), or a missing privilege, is a
// *kernel.NotSupportedError. When ctx is done, Freeze returns its error, and
// the file system is not frozen or about to be thawed: a freeze that the kernel
// has begun cannot be interrupted, only undone, which has happened when Freeze
// returns unless the device hangs.
func (f *Freezer) Freeze(ctx context.Context, dir string) (*Frozen, error) {
	z, err := f.freeze(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("freeze %s: %w", dir, err)
	}
	return z, nil
}

func (f *Freezer) freeze(ctx context.Context, dir string) (*Frozen, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := f.watchdog()
	if err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	t, err := l.begin(dir, f.limit)
	if err != nil {
		return nil, err
	}
	if err := step.Done(ctx, "freeze.asked"); err != nil {
		l.abandon(t)
		return nil, err
	}
	select {
	case errno := <-t.frozen:
		if errno == 0 {
			return &Frozen{dir: dir, link: l, ticket: t}, nil
		}
		l.end(t)
		return nil, explain(errno)
	case <-t.lost:
		return nil, errors.Join(errWatchdogGone, t.err)
	case <-ctx.Done():
		l.abandon(t)
		return nil, ctx.Err()
	}
}

// explain says what the error of a freeze means.
func explain(errno unix.Errno) error {
	switch errno {
	case unix.EBUSY:
		return ErrFrozen
	case unix.EOPNOTSUPP, unix.ENOTTY:
		return &kernel.NotSupportedError{Feature: kernel.Freeze, Reason: "this type of file system cannot be frozen"}
	case unix.EPERM:
		return &kernel.NotSupportedError{Feature: kernel.Freeze, Reason: errno.Error(), Remedy: "run with CAP_SYS_ADMIN"}
	}
	return errno
}

// watchdog returns the link to the running watchdog, and starts one if there is
// none.
func (f *Freezer) watchdog() (*link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	if f.link != nil && !f.link.isDead() {
		return f.link, nil
	}
	l, err := startWatchdog()
	if err != nil {
		return nil, err
	}
	f.link = l
	f.listeners.Go(l.listen)
	return l, nil
}

// Close thaws what is frozen still (its Thaw returns ErrExpired then), ends the
// watchdog and waits until both have happened. Closing again is no error.
func (f *Freezer) Close() error {
	f.mu.Lock()
	f.closed = true
	l := f.link
	f.mu.Unlock()
	if l != nil {
		l.close()
	}
	f.listeners.Wait()
	return nil
}
