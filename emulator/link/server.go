package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// A silent connection is probed after pingEvery and given up after another
// pingTimeout, by both ends. Processes that die are noticed at once; this is
// for machines that go and for processes that are stopped.
const (
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// Array is what nodes ask of the array. *array.Array is one.
type Array interface {
	// SizeOf returns the size of a volume in bytes, or ErrNotFound.
	SizeOf(ctx context.Context, volumeID string) (int64, error)
	// AttachLocal attaches without ControllerPublishVolume.
	AttachLocal(ctx context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error)
	// DetachLocal undoes AttachLocal.
	DetachLocal(ctx context.Context, volumeID, nodeID string) error
	// Authorize checks the secrets of a call; see node.Array.
	Authorize(ctx context.Context, volumeID, method string, digests map[string]string) error
}

// Node is a connected node as it introduced itself.
type Node struct {
	// ID is the node's id.
	ID string
	// Topology are its segments.
	Topology map[string]string
	// Staged are the ids of the volumes that were staged when it connected.
	Staged []string
}

// ServerOptions describe the array's end.
type ServerOptions struct {
	// Array answers the nodes. It is required.
	Array Array
	// Calls hears of the calls to nodes; nil for nobody.
	Calls Calls
	// TLS authenticates both ends; see SharedSecret. It is required.
	TLS *tls.Config
	// Log receives who comes and goes, and who is refused; nil is silent.
	Log *slog.Logger
	// Connected and Disconnected are called when a session begins and ends;
	// each may be nil. For one node they are called in turns, for several
	// nodes at once. The node waits for Connected before it counts itself as
	// connected.
	// An error of Connected ends the session.
	Connected    func(Node) error
	Disconnected func(Node)
}

// Server is the array's end of all links. Its methods are safe for concurrent
// use.
type Server struct {
	o ServerOptions

	mu       sync.Mutex
	sessions map[string]*session
	// streams are the goroutines that read from sessions and write to them.
	streams sync.WaitGroup
}

// NewServer returns a server without nodes.
func NewServer(o ServerOptions) (*Server, error) {
	if o.TLS == nil {
		return nil, errors.New("serve nodes: no TLS configuration is given; see link.SharedSecret")
	}
	if o.Array == nil {
		return nil, errors.New("serve nodes: no array is given")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{o: o, sessions: map[string]*session{}}, nil
}

// Serve answers on lis until ctx ends, and returns nil then. It closes lis and
// leaves no goroutine. What nodes hold for this array ends with their sessions.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	g := grpc.NewServer(
		grpc.Creds(newGuard(s.o.TLS, s.o.Log)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.settle),
		grpc.StreamInterceptor(s.settleStream),
		grpc.WaitForHandlers(true),
	)
	linkpb.RegisterArrayServer(g, &arrayService{server: s})
	defer s.streams.Wait()
	if err := rpc.Serve(ctx, g, lis, 0); err != nil {
		return fmt.Errorf("serve nodes: %w", err)
	}
	return nil
}

// Nodes returns the connected nodes in the order of their ids.
func (s *Server) Nodes() []Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []Node
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if session := s.sessions[id]; session.ctx.Err() == nil {
			n := session.node
			nodes = append(nodes, Node{n.ID, maps.Clone(n.Topology), slices.Clone(n.Staged)})
		}
	}
	return nodes
}

func (s *Server) session(nodeID string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.sessions[nodeID]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("ask node %s: it is not connected: %w", nodeID, backends.ErrUnavailable)
}

// settle turns errors and panics of the array into statuses that keep their
// kind.
func (s *Server) settle(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			reply, err = nil, s.panicked(ctx, info.FullMethod, reason)
		}
	}()
	reply, err = handler(ctx, request)
	if err != nil {
		return nil, encode(err).Err()
	}
	return reply, nil
}

func (s *Server) settleStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = s.panicked(stream.Context(), info.FullMethod, reason)
		}
	}()
	if err := handler(server, stream); err != nil {
		return encode(err).Err()
	}
	return nil
}

func (s *Server) panicked(ctx context.Context, method string, reason any) error {
	s.o.Log.LogAttrs(ctx, slog.LevelError, "panic in a node's call",
		slog.String("method", method), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
	return status.Errorf(codes.Internal, "%s: the array failed by a fault of its own; its log has the details", method)
}
