package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// drainLimit is how long calls that are under way may take to end when Serve
// ends; after that their contexts are cancelled.
const drainLimit = 5 * time.Second

// Serve serves CSI at an endpoint (unix:///path.sock), and every further node
// at its own, until ctx ends. It returns nil then, with the sockets removed.
func (e *Emulator) Serve(ctx context.Context, endpoint string) error {
	l, err := Listen(ctx, e.config.Endpoints(endpoint)...)
	if err != nil {
		return err
	}
	return e.ServeOn(ctx, l)
}

// Endpoints are all endpoints of an emulator: the one of the array and the first
// node, which is given, and those of further nodes.
func (c Config) Endpoints(first string) []string {
	endpoints := []string{first}
	for _, n := range c.Nodes[min(1, len(c.Nodes)):] {
		endpoints = append(endpoints, n.Endpoint)
	}
	return endpoints
}

// Listeners are open endpoints. Clients can connect to them and are answered
// when they are served.
type Listeners struct{ open []net.Listener }

// Listen opens endpoints, in the order of Config.Endpoints: all of them or
// none. It may come before New, so that nothing is made where an endpoint is in
// use.
func Listen(ctx context.Context, endpoints ...string) (*Listeners, error) {
	open, err := listen(ctx, endpoints)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return &Listeners{open: open}, nil
}

// Close closes the endpoints and removes their sockets. It is not needed after
// ServeOn.
func (l *Listeners) Close() error {
	var errs []error
	for _, listener := range l.open {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}

// ServeOn answers at endpoints, which it takes over, until ctx ends. It returns
// nil then, with the sockets removed.
func (e *Emulator) ServeOn(ctx context.Context, l *Listeners) error {
	if len(l.open) > max(1, len(e.nodes)) {
		return errors.Join(fmt.Errorf("serve %d endpoints with %d nodes: %w", len(l.open), len(e.nodes), backends.ErrInvalid), l.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, listener := range l.open {
		name := ""
		if i > 0 {
			name = e.nodes[i].config.Name
		}
		s := grpc.NewServer()
		if err := e.Register(name, s); err != nil {
			cancel(err)
			_ = listener.Close()
			continue
		}
		e.log.InfoContext(ctx, "serving", "endpoint", listener.Addr().String())
		all.Go(func() {
			if err := rpc.Serve(ctx, s, listener, drainLimit); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// listen opens all endpoints, or none.
func listen(ctx context.Context, endpoints []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, s := range endpoints {
		endpoint, err := rpc.ParseEndpoint(s)
		var l net.Listener
		if err == nil {
			l, err = rpc.Listen(ctx, endpoint)
		}
		if err != nil {
			for _, open := range listeners {
				_ = open.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}
