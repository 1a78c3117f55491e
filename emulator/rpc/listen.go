package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrInUse is returned by Listen when another server answers at the endpoint.
var ErrInUse = errors.New("endpoint in use")

// dialTimeout bounds the question whether somebody answers on a socket. A
// listener answers by the kernel, however busy its process is.
const dialTimeout = 2 * time.Second

// Listen listens on an endpoint. A Unix socket that a dead server left is
// replaced; one that is answered is ErrInUse; anything else at its path is left
// alone and is an error. Nothing but the socket is created, and only its owner may
// connect to it (0600), from its first moment on where the system can do that
// (Linux). Close removes the socket if it is still the one that Listen made.
//
// Several processes may listen on one path at once: one of them gets it.
func Listen(ctx context.Context, e Endpoint) (net.Listener, error) {
	if e.Network != "unix" {
		var config net.ListenConfig
		l, err := config.Listen(ctx, e.Network, e.Address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w: %w", e, ErrInUse, err)
		}
		return l, err
	}
	if limit := maxSocketPath(); len(e.Address) > limit {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, and the kernel takes %d (sun_path)", e, len(e.Address), limit)
	}
	path, err := filepath.Abs(e.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", e, err)
	}
	unlock, err := lockDirectory(ctx, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: open the socket's directory, which must exist: %w", e, err)
	}
	defer unlock()
	if err := removeStale(ctx, e.Address); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", e, err)
	}
	return bind(ctx, e, path)
}

// removeStale makes way for a new socket.
func removeStale(ctx context.Context, path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("a %s is in the way, which is not a socket; it is left as it is", describe(found.Mode()))
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%w: another process answers there; stop it or choose another path", ErrInUse)
	case refused(err):
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the socket that a dead server left: %w", err)
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EAGAIN):
		// The queue of a living listener is full.
		return fmt.Errorf("%w: another process listens there and is busy", ErrInUse)
	default:
		return fmt.Errorf("find out whether the socket is in use: %w", err)
	}
}

func refused(err error) bool {
	const wsaConnRefused = syscall.Errno(10061)
	return errors.Is(err, syscall.ECONNREFUSED) || runtime.GOOS == "windows" && errors.Is(err, wsaConnRefused)
}

func describe(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeNamedPipe:
		return "pipe"
	default:
		return "special file"
	}
}

func bind(ctx context.Context, e Endpoint, path string) (net.Listener, error) {
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(ctx, "unix", e.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w: another process was faster", e, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", e, err)
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	if err := restrict(path); err != nil {
		_ = u.Close()
		return nil, fmt.Errorf("listen on %s: keep others out: %w", e, errors.Join(err, os.Remove(path)))
	}
	made, err := os.Lstat(path)
	if err != nil {
		_ = u.Close()
		return nil, fmt.Errorf("listen on %s: find the new socket: %w", e, err)
	}
	return &listener{UnixListener: u, path: path, made: made}, nil
}

// listener removes its socket at Close, but not one that replaced it.
type listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo

	once sync.Once
	err  error
}

// Close stops listening and removes the socket. Later calls return what the
// first did.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.close() })
	return l.err
}

func (l *listener) close() error {
	// The removal comes first: as long as the listener is open, the kernel
	// keeps the inode, so that no other socket can have the same number.
	found, err := os.Lstat(l.path)
	if err == nil && os.SameFile(found, l.made) {
		err = os.Remove(l.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(l.UnixListener.Close(), err)
}
