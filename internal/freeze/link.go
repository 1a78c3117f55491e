//go:build linux

package freeze

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// answerTimeout is how long the watchdog may take to thaw. One that does not
	// answer is killed and its parent thaws.
	answerTimeout = 10 * time.Second
	// undoGrace is how long a cancelled freeze is waited for. On a device that
	// hangs it is undone behind the caller's back.
	undoGrace = 500 * time.Millisecond
)

var errWatchdogGone = errors.New("watchdog is gone")

// link is the parent's side of a running watchdog.
type link struct {
	conn *net.UnixConn
	cmd  *exec.Cmd
	// dead is closed when the process is gone, with its descriptors, and what
	// it had frozen is thawed.
	dead chan struct{}

	mu     sync.Mutex
	lastID uint64
	// tickets are the freezes without an answer to their opThaw; nil when the
	// watchdog is gone.
	tickets map[uint64]*ticket
}

// begin sends the file system mounted at dir to the watchdog, to freeze it.
func (l *link) begin(dir string, limit time.Duration) (*ticket, error) {
	t := newTicket(dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		return nil, errWatchdogGone
	}
	l.lastID++
	t.id = l.lastID
	err := t.lend(func(root *os.File) error {
		return l.send(message{op: opFreeze, id: t.id, value: int64(limit)}, root)
	})
	if err != nil {
		return nil, err
	}
	l.tickets[t.id] = t
	return t, nil
}

// end makes the watchdog thaw and let go. It reports whether it had to.
func (l *link) end(t *ticket) (early bool) {
	timeout := time.AfterFunc(answerTimeout, l.kill)
	defer timeout.Stop()
	l.askToThaw(t)
	select {
	case early = <-t.thawed:
		return early
	case <-t.lost:
		return true
	}
}

// abandon is end for a caller who has no time.
func (l *link) abandon(t *ticket) {
	grace := time.NewTimer(undoGrace)
	defer grace.Stop()
	l.askToThaw(t)
	select {
	case <-t.thawed:
	case <-t.lost:
	case <-grace.C:
	}
}

func (l *link) askToThaw(t *ticket) {
	if l.send(message{op: opThaw, id: t.id}, nil) != nil {
		l.kill()
	}
}

func (l *link) send(m message, root *os.File) error {
	// A watchdog that was stopped reads nothing. Who sends later moves the
	// deadline of who waits already, by no more than the timeout.
	if err := l.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return send(l.conn, m, root)
}

// listen hands out what the watchdog says. When it is gone, what was frozen is
// thawed without it.
func (l *link) listen() {
	defer close(l.dead)
	for {
		m, _, err := receive(l.conn) // the watchdog sends no descriptors
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.kill()
			}
			break
		}
		l.deliver(m)
	}
	_ = l.conn.Close()
	_ = l.cmd.Wait() // how it ended does not matter; it has closed its files now

	l.mu.Lock()
	tickets := l.tickets
	l.tickets = nil
	l.mu.Unlock()
	var rescues sync.WaitGroup
	for _, t := range tickets {
		rescues.Go(t.rescue)
	}
	rescues.Wait()
}

func (l *link) deliver(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tickets[m.id]
	switch {
	case t == nil:
	case m.op == opFrozen:
		t.frozen <- unix.Errno(m.value) // has room, as each comes once
	case m.op == opExpired:
		t.expire()
	case m.op == opThawed:
		delete(l.tickets, m.id)
		t.thawed <- m.value != 0
	}
}

// kill ends the watchdog, if it still runs, without waiting for it.
func (l *link) kill() { _ = l.cmd.Process.Kill() }

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tickets == nil
}

// close ends the watchdog, which thaws what it guards still, and waits for it.
func (l *link) close() {
	timeout := time.AfterFunc(answerTimeout, l.kill)
	defer timeout.Stop()
	if err := l.conn.CloseWrite(); err != nil {
		l.kill()
	}
	<-l.dead
}
