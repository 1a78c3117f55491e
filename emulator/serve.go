package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// drainLimit is how long calls that are under way may take to end when Serve
// ends; after that their contexts are cancelled.
const drainLimit = 5 * time.Second

// Serve serves CSI at an endpoint (unix:///path.sock), and every further node
// at its own, until ctx ends. It returns nil then, with the sockets removed.
func (e *Emulator) Serve(ctx context.Context, endpoint string) error {
	l, err := e.Listen(ctx, endpoint)
	if err != nil {
		return err
	}
	return l.Serve(ctx)
}

// Listeners are the open endpoints of an emulator. Clients can connect to them
// and are answered when Serve is called, which must be called once.
type Listeners struct {
	log     *slog.Logger
	servers []*grpc.Server
	open    []net.Listener
}

// Listen opens an endpoint for the array and the first node, and the further
// nodes' own: all of them or none.
func (e *Emulator) Listen(ctx context.Context, endpoint string) (*Listeners, error) {
	names, endpoints := []string{""}, []string{endpoint}
	for _, n := range e.nodes[min(1, len(e.nodes)):] {
		names, endpoints = append(names, n.config.Name), append(endpoints, n.config.Endpoint)
	}
	l := &Listeners{log: e.log}
	for _, name := range names {
		s := grpc.NewServer()
		if err := e.Register(name, s); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
		l.servers = append(l.servers, s)
	}
	var err error
	if l.open, err = listen(ctx, endpoints); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return l, nil
}

// Serve answers until ctx ends, and returns nil then, with the sockets removed.
func (l *Listeners) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, listener := range l.open {
		l.log.InfoContext(ctx, "serving", "endpoint", listener.Addr().String())
		all.Go(func() {
			if err := serve(ctx, l.servers[i], listener); err != nil {
				cancel(fmt.Errorf("serve %s: %w", listener.Addr(), err))
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

// serve runs a server until ctx ends, then lets calls end by themselves for a
// while.
func serve(ctx context.Context, s *grpc.Server, l net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit := time.AfterFunc(drainLimit, s.Stop)
	defer limit.Stop()
	s.GracefulStop()
	return <-ended
}
