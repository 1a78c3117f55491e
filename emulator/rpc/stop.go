package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Serve runs a server on a listener until ctx ends, and returns nil then; the
// listener is closed. Calls under way may end by themselves within grace; then
// their contexts end, and Serve waits until their methods have returned (with
// no grace at all only if the server was made with grpc.WaitForHandlers).
//
// Connections on which nobody has said anything are closed at once: gRPC would
// wait for them for up to two minutes, and one may come from a mere probe of
// the socket.
func Serve(ctx context.Context, s *grpc.Server, l net.Listener, grace time.Duration) error {
	t := &tracker{Listener: l, conns: map[*tracked]struct{}{}}
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = s.Serve(t)
	}()
	select {
	case <-ended:
		t.close(false)
		s.Stop()
		if failed == nil { // somebody else stopped the server
			return nil
		}
		return fmt.Errorf("serve %s: %w", l.Addr(), failed)
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if grace > 0 {
			t.close(true)
			s.GracefulStop()
		}
	}()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-stopped:
	case <-late.C:
	}
	t.close(false)
	s.Stop()
	<-stopped
	<-ended
	return nil
}

// tracker is a listener that knows its connections.
type tracker struct {
	net.Listener

	mu    sync.Mutex
	conns map[*tracked]struct{}
	// ending is true when no connection is taken any more.
	ending bool
}

// Accept implements net.Listener.
func (t *tracker) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &tracked{Conn: conn, of: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		_ = conn.Close()
	}
	t.conns[c] = struct{}{}
	return c, nil
}

// close closes the listener and its connections, or only those that are silent.
func (t *tracker) close(silent bool) {
	_ = t.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = true
	for c := range t.conns {
		if !silent || !c.spoke.Load() {
			_ = c.Conn.Close()
		}
	}
}

// tracked is a connection of a tracker.
type tracked struct {
	net.Conn
	of    *tracker
	spoke atomic.Bool
}

// Read implements net.Conn.
func (c *tracked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *tracked) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
