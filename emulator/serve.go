package emulator

import (
	"context"
	"errors"
	"fmt"
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
// All endpoints are listened on before the first call is served.
func (e *Emulator) Serve(ctx context.Context, endpoint string) error {
	names := []string{""}
	endpoints := []string{endpoint}
	for i, n := range e.nodes {
		if i > 0 {
			names, endpoints = append(names, n.config.Name), append(endpoints, n.config.Endpoint)
		}
	}
	listeners, err := listen(ctx, endpoints)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var servers sync.WaitGroup
	for i, l := range listeners {
		s := grpc.NewServer()
		if err := e.Register(names[i], s); err != nil {
			cancel(err)
			_ = l.Close()
			continue
		}
		servers.Go(func() {
			if err := serve(ctx, s, l); err != nil {
				cancel(fmt.Errorf("serve %s: %w", endpoints[i], err))
			}
		})
		e.log.InfoContext(ctx, "serving", "endpoint", endpoints[i])
	}
	servers.Wait()
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
