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
)

const (
	// DefaultLimit is how long a file system stays frozen at most if Options
	// say nothing.
	DefaultLimit = 10 * time.Second
	// undoGrace is how long a cancelled Freeze waits for its undoing. A freeze
	// cannot be interrupted; on a device that hangs it goes on behind the
	// caller's back.
	undoGrace = 500 * time.Millisecond
)

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
	// Limit is how long a file system stays frozen at most, counted from just
	// before the freeze, so that flushing is part of it. 0 means DefaultLimit.
	Limit time.Duration
}

// Freezer freezes file systems under the guard of one watchdog process. It is
// safe for concurrent use.
type Freezer struct {
	limit time.Duration

	mu     sync.Mutex
	closed bool
	// link leads to the watchdog; nil before first use.
	link *link
	// tasks are the goroutines of freezes: under way, or frozen.
	tasks sync.WaitGroup
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
// until Thaw. Writers notice only the second part of the flush: what is dirty
// when Freeze begins is written before they are held.
//
// ErrFrozen and ErrNotMounted are returned as they say; a file system that
// cannot be frozen (tmpfs), or a missing privilege, is a
// *kernel.NotSupportedError. When ctx is done, Freeze returns its error, and
// the file system is not frozen or about to be thawed: a freeze that the kernel
// has begun is undone as soon as the kernel lets go, which is before Freeze
// returns unless the device hangs.
func (f *Freezer) Freeze(ctx context.Context, dir string) (*Frozen, error) {
	t := &task{frozen: make(chan *Frozen), done: make(chan struct{})}
	if err := f.begin(ctx, t, dir); err != nil {
		return nil, fmt.Errorf("freeze %s: %w", dir, err)
	}
	select {
	case z := <-t.frozen:
		return z, nil
	case <-t.done:
	case <-ctx.Done():
		grace := time.NewTimer(undoGrace)
		defer grace.Stop()
		select {
		case <-t.done:
		case <-grace.C:
		}
		return nil, fmt.Errorf("freeze %s: %w", dir, ctx.Err())
	}
	return nil, fmt.Errorf("freeze %s: %w", dir, t.err)
}

// begin starts the goroutine of one freeze.
func (f *Freezer) begin(ctx context.Context, t *task, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.tasks.Go(func() { t.run(ctx, f, dir) })
	return nil
}

// task is one freeze, in a goroutine of its own because no system call on the
// way can be interrupted.
type task struct {
	// frozen takes the result, if the caller still waits for it.
	frozen chan *Frozen
	// done is closed when nothing is frozen or held any more; err is set before.
	done chan struct{}
	err  error
}

func (t *task) run(ctx context.Context, f *Freezer, dir string) {
	defer close(t.done)
	z, err := f.freeze(ctx, dir)
	if err != nil {
		t.err = err
		return
	}
	select {
	case t.frozen <- z:
		z.stayGuarded()
	case <-ctx.Done():
		// If this fails, the watchdog tries again when the limit passes.
		t.err = errors.Join(ctx.Err(), z.Thaw())
	}
}

func (f *Freezer) freeze(ctx context.Context, dir string) (*Frozen, error) {
	root, err := openMounted(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		return nil, errors.Join(os.NewSyscallError("syncfs", err), closeAndSettle(root))
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, closeAndSettle(root))
	}
	z, err := f.guard(dir, root)
	if err != nil {
		return nil, errors.Join(err, closeAndSettle(root))
	}
	if err := freezeRoot(root); err != nil {
		z.link.release(z.guard)
		return nil, errors.Join(err, closeAndSettle(root))
	}
	return z, nil
}

// guard gives root to the watchdog before it is frozen: there is no moment in
// which this process could die and leave it frozen.
func (f *Freezer) guard(dir string, root *os.File) (*Frozen, error) {
	l, err := f.watchdog()
	if err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	g, err := l.hold(root, f.limit)
	if err != nil {
		return nil, fmt.Errorf("ask watchdog to guard: %w", err)
	}
	return &Frozen{dir: dir, root: root, link: l, guard: g, done: make(chan struct{})}, nil
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
	f.tasks.Wait()
	return nil
}
