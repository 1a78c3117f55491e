package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// A node tries to connect at once, then after firstPause, and less and less
// often down to every lastPause.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Local is the node that a Client speaks for. *node.Node is one.
type Local interface {
	// Volumes returns the ids of the staged volumes.
	Volumes() []string
	// Hold stops changes of a volume; release is called once. exact is
	// backends.Hold.Exact.
	Hold(ctx context.Context, volumeID string, exact bool) (release func(context.Context) error, err error)
}

// ClientOptions describe a node's end.
type ClientOptions struct {
	// Endpoint is where the array is; see ParseEndpoint.
	Endpoint rpc.Endpoint
	// TLS authenticates both ends; see SharedSecret. It is required.
	TLS *tls.Config
	// NodeID is the node's id: at most 256 bytes.
	NodeID string
	// Topology are the node's segments.
	Topology map[string]string
	// Log receives how the connection comes and goes; nil is silent.
	Log *slog.Logger
}

// Client is a node's end of the link. It implements node.Array: calls fail with
// backends.ErrUnavailable as long as the array does not answer. Its methods are
// safe for concurrent use.
type Client struct {
	o     ClientOptions
	conn  *grpc.ClientConn
	array linkpb.ArrayClient

	mu sync.Mutex
	// ready is closed while a session stands.
	ready     chan struct{}
	connected bool
	// failure is why there is no session.
	failure error
}

// NewClient returns a client that may ask the array. It connects when it is
// first used; Run introduces the node and keeps it connected. Close it.
func NewClient(o ClientOptions) (*Client, error) {
	if o.TLS == nil {
		return nil, errors.New("connect to the array: no TLS configuration is given; see link.SharedSecret")
	}
	if o.NodeID == "" || len(o.NodeID) > maxNodeID {
		return nil, fmt.Errorf("connect to the array: node id %q does not have 1 to %d bytes: %w", o.NodeID, maxNodeID, backends.ErrInvalid)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{o: o, ready: make(chan struct{})}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///array",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, o.Endpoint.Network, o.Endpoint.Address)
		}),
		grpc.WithTransportCredentials(credentials.NewTLS(o.TLS)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastPause},
			MinConnectTimeout: pingTimeout,
		}),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the array at %s: %w", o.Endpoint, err)
	}
	c.array = linkpb.NewArrayClient(c.conn)
	return c, nil
}

// Close ends the connection. A Run that is under way should be ended first, by
// its context.
func (c *Client) Close() error {
	if err := c.conn.Close(); status.Code(err) != codes.Canceled {
		return err
	}
	return nil // closed already
}

// SizeOf returns the size of a volume in bytes, ErrNotFound when the array does
// not have it, and ErrUnavailable when the array does not answer.
func (c *Client) SizeOf(ctx context.Context, volumeID string) (int64, error) {
	r, err := c.array.SizeOf(ctx, &linkpb.SizeOfRequest{VolumeId: volumeID})
	if err != nil {
		return 0, c.explain(ctx, "look for volume "+volumeID, err)
	}
	return r.GetSizeBytes(), nil
}

// AttachLocal attaches a volume to a node and returns the publish context.
func (c *Client) AttachLocal(ctx context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error) {
	r, err := c.array.AttachLocal(ctx, &linkpb.AttachLocalRequest{VolumeId: volumeID, NodeId: nodeID, ReadOnly: readOnly})
	if err != nil {
		return nil, c.explain(ctx, "attach volume "+volumeID, err)
	}
	return r.GetPublishContext(), nil
}

// DetachLocal undoes AttachLocal.
func (c *Client) DetachLocal(ctx context.Context, volumeID, nodeID string) error {
	_, err := c.array.DetachLocal(ctx, &linkpb.DetachLocalRequest{VolumeId: volumeID, NodeId: nodeID})
	return c.explain(ctx, "detach volume "+volumeID, err)
}

// Authorize asks whether secrets, of which it is given the digests, are those
// that a volume demands for a call: ErrUnauthenticated says that they are not.
func (c *Client) Authorize(ctx context.Context, volumeID, method string, digests map[string]string) error {
	_, err := c.array.Authorize(ctx, &linkpb.AuthorizeRequest{VolumeId: volumeID, Method: method, Digests: digests})
	return c.explain(ctx, "check the secrets for volume "+volumeID, err)
}

// explain makes an error of what a call returned.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch {
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w: the array at %s has not answered: %w", what, backends.ErrUnavailable, c.o.Endpoint, context.DeadlineExceeded)
	case s.Code() == codes.Canceled && ctx.Err() == nil:
		// The array stopped, or the client is closed.
		return fmt.Errorf("%s: ask the array at %s: %s: %w", what, c.o.Endpoint, s.Message(), backends.ErrUnavailable)
	}
	return fmt.Errorf("%s: ask the array at %s: %w", what, c.o.Endpoint, decode(s.Code(), s.Message()))
}

// Ready waits until the array knows the node, which needs a Run. The error says
// what the last attempt met.
func (c *Client) Ready(ctx context.Context) error {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return fmt.Errorf("wait for the array: %w: %w", ctx.Err(), c.failure)
	}
	return fmt.Errorf("wait for the array at %s: %w", c.o.Endpoint, ctx.Err())
}
