//go:build linux

package freeze

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	watchdogName = "csiemu-freeze-watchdog"
	watchdogEnv  = "CSIEMU_FREEZE_WATCHDOG"
	// watchdogFD is the first of exec.Cmd's ExtraFiles.
	watchdogFD = 3
)

// startWatchdog runs this executable again. The caller lets the link listen,
// which frees it when the watchdog is gone.
func startWatchdog() (*link, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	// The executable that runs, even if its file was replaced or removed.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{watchdogName}
	// The runtime need not keep files of the cgroup open to count processors.
	cmd.Env = []string{watchdogEnv + "=1", "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &link{conn: conn, cmd: cmd, dead: make(chan struct{}), tickets: make(map[uint64]*ticket)}, nil
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
		err = detach()
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
// what it would keep busy: descriptors that the parent inherited without
// close-on-exec. Those of the Go runtime have the flag.
func detach() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			return err
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
