package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/emulator"
)

// server is an emulator that serves on unix sockets and can be ended and
// started again over the same state, as `csiemu serve` would be.
type server struct {
	backend string
	dir     string // of the state
	sockets string // short, as the path of a socket has to be
	nodes   []emulator.Node

	emulator *emulator.Emulator
	stop     context.CancelFunc
	served   chan error
}

// newServer describes an emulator that serves the nodes named.
func newServer(backend, dir, sockets string, names ...string) *server {
	s := &server{backend: backend, dir: dir, sockets: sockets}
	for i, name := range names {
		n := emulator.Node{Name: name}
		if i > 0 { // the first is served on the emulator's own endpoint
			n.Endpoint = s.endpoint(name)
		}
		s.nodes = append(s.nodes, n)
	}
	return s
}

// socket is in a directory of its own, as each node of a cluster has one.
func (s *server) socket(node string) string { return filepath.Join(s.sockets, node, "csi.sock") }

func (s *server) endpoint(node string) string { return "unix://" + s.socket(node) }

// start opens the state, serves it, and returns when the first node answers.
func (s *server) start(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := os.MkdirAll(filepath.Dir(s.socket(n.Name)), 0o700); err != nil {
			return fmt.Errorf("start the emulator: %w", err)
		}
	}
	state := filepath.Join(s.dir, "state")
	backend, err := store.New(ctx, s.backend, store.Options{Dir: state})
	if err != nil {
		return err
	}
	s.emulator, err = emulator.New(ctx, emulator.Config{Backend: backend, StateDir: state, Nodes: s.nodes})
	if err != nil {
		return err
	}
	// The walk ends the server itself, in its own order.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.served = stop, make(chan error, 1)
	go func() { s.served <- s.emulator.Serve(serving, s.endpoint(s.nodes[0].Name)) }()

	conn, err := s.dial(s.nodes[0].Name)
	if err != nil {
		return errors.Join(err, s.end())
	}
	defer conn.Close()
	probed := make(chan error, 1)
	go func() {
		_, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{})
		probed <- err
	}()
	select {
	case err := <-probed:
		if err != nil {
			return errors.Join(fmt.Errorf("probe the emulator: %w", err), s.end())
		}
		return nil
	case err := <-s.served:
		s.served <- err
		return s.end()
	}
}

// end stops serving and closes the emulator; volumes that are in use stay. It
// may be called again.
func (s *server) end() error {
	if s.emulator == nil {
		return nil
	}
	s.stop()
	err := errors.Join(<-s.served, s.emulator.Close())
	s.emulator = nil
	return err
}

// dial connects to the socket of a node. The connection survives a restart of
// the server.
func (s *server) dial(node string) (*grpc.ClientConn, error) {
	soon := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}
	conn, err := grpc.NewClient(s.endpoint(node),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", node, err)
	}
	return conn, nil
}
