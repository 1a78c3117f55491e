package registrar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// offer is a registration socket in the kubelet's directory, and the server behind
// it.
type offer struct {
	number int
	path   string
	// socket is the file that was put there.
	socket fs.FileInfo
	server *grpc.Server
	// served is closed when it has ended.
	served chan struct{}
}

// longestPath is the room for a path in sockaddr_un (unix(7)), without its zero byte.
const longestPath = 107

// temporary begins the names of the directories in which sockets are made. The
// kubelet looks at no name that begins with a dot.
const temporary = ".csiemu-registrar-"

// put offers a service at a path. What is there is replaced if it is a socket.
//
// The socket is made in a directory that only this user can enter, gets its mode
// there, and is renamed to its place: nobody can connect to it before, the process's
// umask stays as it is, and the kubelet sees one event, a file that comes.
func put(ctx context.Context, path string, service registerapi.RegistrationServer) (o *offer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("offer registration socket %s: %w", path, err)
		}
	}()
	if len(path) > longestPath {
		return nil, fmt.Errorf("the path has %d bytes, a socket's has %d at most", len(path), longestPath)
	}
	if _, err := socketAt(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	sweep(dir)
	private, err := os.MkdirTemp(dir, temporary)
	if err != nil {
		if of, is := errors.AsType[*fs.PathError](err); is {
			err = of.Err // its path is another one at each attempt
		}
		return nil, fmt.Errorf("make a directory in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, os.Remove(private)) }()
	made := filepath.Join(private, ".s")
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	// It is removed by name, after a look at what is there.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			_ = l.Close()
			_ = os.Remove(made)
		}
	}()
	if err := os.Chmod(made, 0o600); err != nil {
		return nil, err
	}
	o = &offer{path: path, server: grpc.NewServer(), served: make(chan struct{})}
	if o.socket, err = os.Lstat(made); err != nil {
		return nil, err
	}
	registerapi.RegisterRegistrationServer(o.server, service)
	if err := os.Rename(made, path); err != nil {
		return nil, err
	}
	go func() {
		defer close(o.served)
		_ = o.server.Serve(l) // ended tells that it did by itself
	}()
	return o, nil
}

// socketAt is the socket at a path, nil if nothing is there, ErrNotSocket if it is
// something else.
func socketAt(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%w: %s is there (%v): remove it if it is not needed", ErrNotSocket, path, info.Mode())
	}
	return info, nil
}

// inPlace reports whether the path still has this offer's socket, and what it has
// otherwise: nil for nothing.
func (o *offer) inPlace() (ours bool, other fs.FileInfo, err error) {
	info, err := socketAt(o.path)
	if err != nil || info == nil {
		return false, nil, err
	}
	if os.SameFile(info, o.socket) {
		return true, nil, nil
	}
	return false, info, nil
}

// withdraw removes the socket, unless another one is in its place, and ends the
// server.
func (o *offer) withdraw() error {
	ours, _, err := o.inPlace()
	if ours {
		err = os.Remove(o.path)
	}
	o.end()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrNotSocket) {
		return fmt.Errorf("take registration socket %s away: %w", o.path, err)
	}
	return nil
}

// ended reports whether the server has ended by itself: it cannot accept any more.
func (o *offer) ended() bool {
	select {
	case <-o.served:
		return true
	default:
		return false
	}
}

// end ends the server of an offer whose socket is not in place any more.
func (o *offer) end() {
	o.server.Stop()
	<-o.served
}

// sweep removes the directories of registrars that were killed within the moment in
// which they have one: those a minute old that hold nothing but a socket.
func sweep(dir string) {
	const old = time.Minute
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // making the directory tells the same
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), temporary) || time.Since(info.ModTime()) < old {
			continue
		}
		left := filepath.Join(dir, e.Name())
		if s := filepath.Join(left, ".s"); isSocket(s) {
			_ = os.Remove(s)
		}
		_ = os.Remove(left) // not if it holds anything else
	}
}

func isSocket(path string) bool {
	info, err := socketAt(path)
	return err == nil && info != nil
}

// answers reports whether somebody listens on a socket.
func answers(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
