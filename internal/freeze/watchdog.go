//go:build linux

package freeze

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// thawAgain is when a thaw that failed is tried again.
const thawAgain = 50 * time.Millisecond

// watchdog is what the second process does.
type watchdog struct {
	conn *net.UnixConn
	// orphaned is closed when the parent is gone.
	orphaned chan struct{}
	guards   sync.WaitGroup
}

// watch freezes and thaws for the parent until the parent is gone, and thaws
// what is left then.
func watch(conn *net.UnixConn) {
	w := watchdog{conn: conn, orphaned: make(chan struct{})}
	wishes := make(map[uint64]chan struct{})
	for {
		m, root, err := receive(conn)
		if err != nil {
			break
		}
		switch m.op {
		case opFreeze:
			thaw := make(chan struct{})
			wishes[m.id] = thaw
			w.guards.Go(func() { w.guard(m, root, thaw) })
		case opThaw:
			close(wishes[m.id])
			delete(wishes, m.id)
		}
	}
	close(w.orphaned)
	w.guards.Wait()
}

// guard answers for one file system. Each has its own goroutine, as none of the
// system calls can be interrupted. root is nil where this process could not have
// one more descriptor.
func (w *watchdog) guard(m message, root *os.File, thaw <-chan struct{}) {
	early := w.freeze(m, root, thaw)
	select {
	case <-thaw:
		w.tell(message{op: opThawed, id: m.id, value: early})
	case <-w.orphaned:
	}
}

// freeze returns when root is thawed, or could not be frozen, and is closed. It
// reports with 1 that this was not the parent's wish.
func (w *watchdog) freeze(m message, root *os.File, thaw <-chan struct{}) (early int64) {
	if root == nil {
		w.tell(message{op: opFrozen, id: m.id, value: int64(unix.EMFILE)})
		return 1
	}
	err := w.flush(root, thaw)
	// From here on writers may be held.
	limit := time.NewTimer(time.Duration(m.value))
	defer limit.Stop()
	if err == nil {
		err = freeze(root)
	}
	if err != nil {
		_ = root.Close()
		w.tell(message{op: opFrozen, id: m.id, value: errorNumber(err)})
		return 1
	}
	w.tell(message{op: opFrozen, id: m.id})
	select {
	case <-thaw:
		early = thawForSure(root)
		_ = root.Close()
	case <-w.orphaned:
		thawForSure(root)
		_ = root.Close()
	case <-limit.C:
		thawForSure(root)
		_ = root.Close()
		w.tell(message{op: opExpired, id: m.id})
		early = 1
	}
	return early
}

// flush writes what is dirty while writers go on, so that they are held only for
// the rest. An error means that there is nothing to freeze any more.
func (w *watchdog) flush(root *os.File, thaw <-chan struct{}) error {
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		return err
	}
	select {
	case <-thaw:
		return unix.ECANCELED
	case <-w.orphaned:
		return unix.ECANCELED
	default:
		return nil
	}
}

// thawForSure returns when root is not frozen any more, and 1 if it was not
// frozen before.
func thawForSure(root *os.File) (early int64) {
	for {
		switch err := thaw(root); {
		case err == nil:
			return 0
		case errors.Is(err, unix.EINVAL):
			return 1
		}
		<-time.After(thawAgain)
	}
}

// tell sends m. A parent that is gone needs no telling.
func (w *watchdog) tell(m message) { _ = send(w.conn, m, nil) }

func errorNumber(err error) int64 {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return int64(errno)
	}
	return int64(unix.EIO)
}
