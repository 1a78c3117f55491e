//go:build linux

package crash_test

import (
	"context"
	"errors"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// line is a connection to process after process: a call that is cut is made
// again at the next one, as an orchestrator does. It is safe for concurrent use.
type line struct {
	mu   sync.Mutex
	conn *grpc.ClientConn
	// up is false from the end of a process until the next one may be called.
	up bool
	// changed is closed when up becomes true.
	changed chan struct{}
	// killAt is the point at which the next call is to be killed, 0 for none.
	killAt int
}

func newLine(conn *grpc.ClientConn) *line {
	return &line{conn: conn, up: true, changed: make(chan struct{})}
}

// arm has the next call killed at its n-th point.
func (l *line) arm(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killAt = n
}

// cut makes callers wait until mend.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.killAt = false, 0
}

// mend lets callers go on, with the next process.
func (l *line) mend(conn *grpc.ClientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.up = conn, true
	close(l.changed)
	l.changed = make(chan struct{})
}

// next waits for a process other than that behind old, which may be nil.
func (l *line) next(ctx context.Context, old *grpc.ClientConn) (conn *grpc.ClientConn, killAt int, err error) {
	for {
		l.mu.Lock()
		if l.up && l.conn != old {
			conn, killAt, l.killAt = l.conn, l.killAt, 0
			l.mu.Unlock()
			return conn, killAt, nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (l *line) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	var conn *grpc.ClientConn
	for {
		var killAt int
		var err error
		if conn, killAt, err = l.next(ctx, conn); err != nil {
			return err
		}
		call, cancel := context.WithTimeout(ctx, patience)
		if killAt > 0 {
			call = killingAt(call, killAt)
		}
		err = conn.Invoke(call, method, args, reply, opts...)
		cancel()
		// What a dead process leaves, or the end of the connection to it.
		if code := status.Code(err); ctx.Err() != nil || (code != codes.Unavailable && code != codes.Canceled) {
			return err
		}
	}
}

// NewStream implements grpc.ClientConnInterface.
func (l *line) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

func clientsOf(conn grpc.ClientConnInterface) clients {
	return clients{csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewGroupControllerClient(conn), csi.NewNodeClient(conn)}
}
