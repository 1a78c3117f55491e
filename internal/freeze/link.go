//go:build linux

package freeze

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long the watchdog may take to answer. One that does not
// is killed: what it guards is thawed then, and a new one started.
const answerTimeout = 10 * time.Second

var (
	errWatchdogGone = errors.New("watchdog is gone")
	errNoRoom       = errors.New("watchdog has too many open files")
)

// link is the parent's side of a running watchdog.
type link struct {
	conn *net.UnixConn
	cmd  *exec.Cmd
	// dead is closed when the process is gone, and its descriptors with it.
	dead chan struct{}

	mu     sync.Mutex
	lastID uint64
	guards map[uint64]*guarded
}

// guarded is one descriptor in the hands of the watchdog.
type guarded struct {
	id      uint64
	answers chan message
	expired chan struct{}
	once    sync.Once
}

func (g *guarded) expire() { g.once.Do(func() { close(g.expired) }) }

func startWatchdog() (*link, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	// This executable, even if its file was replaced or removed meanwhile.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{watchdogName}
	cmd.Env = []string{watchdogEnv + "=1"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	err = errors.Join(err, theirs.Close())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l := &link{conn: conn, cmd: cmd, dead: make(chan struct{}), guards: make(map[uint64]*guarded)}
	go l.listen()
	return l, nil
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "parent"), os.NewFile(uintptr(fds[1]), "watchdog")
	conn, err := unixConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// unixConn makes a connection of f, which it takes.
func unixConn(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f) // which duplicates the descriptor
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// listen hands out what the watchdog says, until it is gone.
func (l *link) listen() {
	defer close(l.dead)
	for {
		m, _, err := receive(l.conn) // the watchdog sends no descriptors
		if err != nil {
			break
		}
		l.mu.Lock()
		g := l.guards[m.id]
		l.mu.Unlock()
		switch {
		case g == nil:
		case m.op == opExpired:
			g.expire()
		default:
			g.answers <- m // has room: each question waits for its answer
		}
	}
	l.kill()
	_ = l.conn.Close()
	_ = l.cmd.Wait() // how it ended does not matter; a zombie has closed its files
}

// kill ends the watchdog, if it still runs, without waiting for it.
func (l *link) kill() { _ = l.cmd.Process.Kill() }

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// hold gives the watchdog a descriptor of root to guard.
func (l *link) hold(root *os.File, limit time.Duration) (*guarded, error) {
	l.mu.Lock()
	l.lastID++
	g := &guarded{id: l.lastID, answers: make(chan message, 1), expired: make(chan struct{})}
	l.guards[g.id] = g
	l.mu.Unlock()
	answer, err := l.ask(g, message{op: opHold, id: g.id, value: int64(limit)}, root)
	if err == nil && answer.value != 0 {
		err = errNoRoom
	}
	if err != nil {
		l.forget(g)
		return nil, err
	}
	return g, nil
}

// release makes the watchdog let go of g and reports whether it thawed before.
// When it returns, the watchdog has closed its descriptor or is gone.
func (l *link) release(g *guarded) (expired bool) {
	defer l.forget(g)
	m, err := l.ask(g, message{op: opRelease, id: g.id}, nil)
	return err == nil && m.value != 0
}

func (l *link) forget(g *guarded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.guards, g.id)
}

// ask sends m and waits for the answer. An error means that the watchdog is
// gone.
func (l *link) ask(g *guarded, m message, root *os.File) (message, error) {
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	// A watchdog that was stopped reads nothing. Asking later moves the deadline
	// of those who wait already, by no more than the timeout.
	err := l.conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	if err == nil {
		err = send(l.conn, m, root)
	}
	if err == nil {
		select {
		case answer := <-g.answers:
			return answer, nil
		case <-l.dead:
		case <-timeout.C:
		}
	}
	l.kill()
	<-l.dead
	return message{}, errWatchdogGone
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
