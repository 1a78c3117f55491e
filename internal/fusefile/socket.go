//go:build linux

package fusefile

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// withControl lends a short path of the socket in dir: the kernel takes no more
// than 107 bytes (unix(7)), and the directories of volumes have longer names.
func withControl[T any](dir string, f func(path string) (T, error)) (T, error) {
	d, err := os.Open(dir)
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return f(filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), controlName))
}

// listen makes the socket. The directory keeps others out.
func listen(dir string) (*net.UnixListener, error) {
	return withControl(dir, func(path string) (*net.UnixListener, error) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return nil, err
		}
		// By then the path is another's.
		l.SetUnlinkOnClose(false)
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	})
}

// dial connects to the holder of dir. ErrNotServing is returned when there is
// none.
func dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	conn, err := withControl(dir, func(path string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, errors.Join(ErrNotServing, err)
	case err != nil:
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// peer is the process that listens at the other end.
func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return int(credentials.Pid), nil
}
