//go:build linux

package freeze

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	watchdogName = "csiemu-freeze-watchdog"
	watchdogEnv  = "CSIEMU_FREEZE_WATCHDOG"
	watchdogFD   = 3
	// thawAgain is when a thaw that failed is tried again: the freeze is not
	// complete yet.
	thawAgain = 50 * time.Millisecond
)

// init turns the process into the watchdog if that is what it was started for;
// the package's documentation says why.
func init() {
	if os.Getenv(watchdogEnv) == "" {
		return
	}
	_ = os.Unsetenv(watchdogEnv)
	if !isPacketSocket(watchdogFD) { // somebody set the variable by hand
		return
	}
	conn, err := unixConn(os.NewFile(watchdogFD, "parent"))
	if err == nil {
		err = detach(conn)
	}
	if err != nil {
		os.Exit(1) // the parent sees the socket close
	}
	watch(conn)
	os.Exit(0)
}

func isPacketSocket(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

// detach frees the process from what could end it before its parent, and from
// what it could keep busy.
func detach(conn *net.UnixConn) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return closeInherited()
}

// closeInherited closes the descriptors that came from the parent's own parents
// without close-on-exec. Those of the Go runtime have the flag.
func closeInherited() error {
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			return fmt.Errorf("list descriptors: %w", err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// watch guards what the parent hands over until the parent is gone, and thaws
// what is left then.
func watch(conn *net.UnixConn) {
	w := watchdog{conn: conn, orphaned: make(chan struct{})}
	releases := make(map[uint64]chan struct{})
	for {
		m, root, err := receive(conn)
		if err != nil {
			break
		}
		switch {
		case m.op == opHold && root == nil: // no room for one more descriptor
			w.tell(message{op: opHeld, id: m.id, value: 1})
		case m.op == opHold:
			release := make(chan struct{})
			releases[m.id] = release
			w.guards.Go(func() { w.guard(m, root, release) })
		case m.op == opRelease && releases[m.id] != nil:
			close(releases[m.id])
			delete(releases, m.id)
		}
	}
	close(w.orphaned)
	w.guards.Wait()
}

type watchdog struct {
	conn *net.UnixConn
	// orphaned is closed when the parent is gone.
	orphaned chan struct{}
	guards   sync.WaitGroup
}

// guard holds root until it is released. A thaw may take long, on a device that
// hangs, so each has its own goroutine.
func (w *watchdog) guard(m message, root *os.File, release <-chan struct{}) {
	w.tell(message{op: opHeld, id: m.id})
	limit := time.NewTimer(time.Duration(m.value))
	defer limit.Stop()
	for {
		select {
		case <-release:
			_ = root.Close()
			w.tell(message{op: opReleased, id: m.id})
			return
		case <-w.orphaned:
			// The parent's threads are gone, so its freeze has ended, one way
			// or the other: there is nothing to try again.
			_ = thawRoot(root)
			_ = root.Close()
			return
		case <-limit.C:
			if thawRoot(root) != nil {
				limit.Reset(thawAgain)
				continue
			}
			_ = root.Close()
			w.tell(message{op: opExpired, id: m.id})
			w.awaitRelease(m.id, release)
			return
		}
	}
}

// awaitRelease answers for what was thawed and closed already.
func (w *watchdog) awaitRelease(id uint64, release <-chan struct{}) {
	select {
	case <-release:
		w.tell(message{op: opReleased, id: id, value: 1})
	case <-w.orphaned:
	}
}

// tell sends m. A parent that is gone needs no telling.
func (w *watchdog) tell(m message) { _ = send(w.conn, m, nil) }
