//go:build linux

package fusefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

const (
	holderName = "csiemu-fuse-holder"
	holderEnv  = "CSIEMU_FUSE_HOLDER"
	// The first of exec.Cmd's ExtraFiles are these.
	linkFD, imageFD, lockFD = 3, 4, 5
)

// Config is what a holder is started with.
type Config struct {
	// Dir is the holder's own directory, which is made if its parent exists.
	Dir string
	// VolumeID marks its mount.
	VolumeID string
	// Image is the file to serve, open for reading and writing. The caller may
	// close it.
	Image *os.File
	// Behaviour is that of the first request on.
	Behaviour Behaviour
	// Tied makes a holder that ends with this process, however that ends.
	Tied bool
}

// Holder is a holder that this process started, which reaps it. It is not safe
// for concurrent use.
type Holder struct {
	pidfd int           // -1 where the kernel has none, and when it was closed
	link  *net.UnixConn // nil if it is not tied
}

// startPatience is how long a holder may take that is on its way out, or in.
const startPatience = 10 * time.Second

// Start starts the holder of a directory, whose earlier one must be gone or on
// its way. When it returns, Path is the served file. A *kernel.NotSupportedError
// is returned on machines without FUSE. After an error there is no new holder.
func Start(ctx context.Context, c Config) (*Holder, error) {
	h, err := start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start holder in %s: %w", c.Dir, err)
	}
	return h, nil
}

func start(ctx context.Context, c Config) (*Holder, error) {
	if err := kernel.Probe(ctx, kernel.FUSE); err != nil {
		return nil, err
	}
	if err := makeDir(c.Dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	lock, err := awaitLock(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the holder has a copy
	if err := errors.Join(clearMounts(c.Dir, c.VolumeID), removeControl(c.Dir), makeDir(mountPoint(c.Dir))); err != nil {
		return nil, err
	}
	return run(ctx, c, lock)
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// lockLook is how often a lock is tried. The kernel announces no release.
const lockLook = 2 * time.Millisecond

func awaitLock(ctx context.Context, dir string) (*os.File, error) {
	look := time.NewTicker(lockLook)
	defer look.Stop()
	for {
		lock, err := tryLock(dir)
		if lock != nil || err != nil {
			return lock, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("another holder has the lock: %w", ctx.Err())
		}
	}
}

// run starts the process and waits until it serves.
func run(ctx context.Context, c Config, lock *os.File) (_ *Holder, err error) {
	link, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	// The executable that runs, even if its file was replaced or removed.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{holderName, c.VolumeID}
	// The runtime need not keep files of the cgroup open to count processors, and
	// is to give back the buffers of large requests.
	cmd.Env = []string{holderEnv + "=1", "GODEBUG=containermaxprocs=0", "GOMEMLIMIT=32MiB"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs, c.Image, lock}
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, errors.Join(err, link.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = link.SetDeadline(time.Now()) })
	defer stop()
	if err := greet(link, orders{VolumeID: c.VolumeID, Dir: c.Dir, Behaviour: c.Behaviour, Tied: c.Tied}); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // how it ended does not matter
		_ = unix.Close(pidfd)
		return nil, errors.Join(ctx.Err(), err, link.Close(), clearMounts(c.Dir, c.VolumeID), removeControl(c.Dir))
	}
	h := &Holder{pidfd: pidfd, link: link}
	if !c.Tied {
		h.link = nil
		err = link.Close()
	}
	return h, errors.Join(err, cmd.Process.Release())
}

// greet gives the orders and hears that the holder serves.
func greet(link *net.UnixConn, o orders) error {
	if err := json.NewEncoder(link).Encode(o); err != nil {
		return err
	}
	var r ready
	if err := json.NewDecoder(link).Decode(&r); err != nil {
		return fmt.Errorf("hear from the holder: %w", err)
	}
	switch {
	case r.Errno == unix.EPERM, r.Errno == unix.ENODEV:
		return &kernel.NotSupportedError{Feature: kernel.FUSE, Reason: r.Error, Remedy: "run with CAP_SYS_ADMIN and /dev/fuse"}
	case r.Errno != 0:
		return fmt.Errorf("%s: %w", r.Error, r.Errno)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "holder")
	conn, err := unixConn(os.NewFile(uintptr(fds[0]), "parent"))
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

// init turns the process into a holder if that is what it was started for; the
// package's documentation says why.
func init() {
	if os.Getenv(holderEnv) == "" {
		return
	}
	_ = os.Unsetenv(holderEnv)
	if !isStreamSocket(linkFD) { // somebody set the variable by hand
		return
	}
	// The lock is only kept open.
	image := os.NewFile(imageFD, "image")
	link, err := unixConn(os.NewFile(linkFD, "parent"))
	if err == nil {
		err = detach()
	}
	if err == nil {
		err = hold(link, image)
	}
	if err != nil {
		os.Exit(1) // the parent sees the socket close
	}
	os.Exit(0)
}

func isStreamSocket(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_STREAM
}

// detach frees the process from what could end it before its time, and from
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
		if fd > lockFD && err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
