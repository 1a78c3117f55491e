//go:build linux

package reaper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	name     = "csiemu-reaper"
	variable = "CSIEMU_REAPER"
	// socketFD is the first of exec.Cmd's ExtraFiles.
	socketFD = 3
)

// released is what the parent says when there is nothing to take away.
const released = 'r'

// Guard is a process that waits for the death of this one.
type Guard struct {
	cmd  *exec.Cmd
	conn *os.File
}

// Watch starts a guard for a directory, which is absolute and belongs to the
// caller alone. Release ends it.
func Watch(dir string) (*Guard, error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
		return nil, fmt.Errorf("guard %q: it is no clean absolute path", dir)
	}
	// The kernel tells where mounts and files really are.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", dir, err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", dir, os.NewSyscallError("socketpair", err))
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "guard"), os.NewFile(uintptr(fds[1]), "parent")
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{name}
	cmd.Env = []string{variable + "=" + dir, "GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("guard %s: %w", dir, err), ours.Close())
	}
	return &Guard{cmd: cmd, conn: ours}, nil
}

// Reap has the guard take everything away now, and ends it.
func (g *Guard) Reap() error { return errors.Join(g.conn.Close(), g.cmd.Wait()) }

// Release ends the guard; nothing is taken away.
func (g *Guard) Release() error {
	_, err := g.conn.Write([]byte{released})
	return errors.Join(err, g.conn.Close(), g.cmd.Wait())
}

// init turns the process into the guard if that is what it was started for.
func init() {
	dir := os.Getenv(variable)
	if dir == "" {
		return
	}
	_ = os.Unsetenv(variable)
	if !isSocket(socketFD) { // somebody set the variable by hand
		return
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	var word [1]byte
	n, err := io.ReadFull(os.NewFile(socketFD, "parent"), word[:])
	if n == 1 && err == nil && word[0] == released {
		os.Exit(0)
	}
	if err := Reap(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func isSocket(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && domain == unix.AF_UNIX
}
