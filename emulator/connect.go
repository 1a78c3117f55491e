package emulator

import (
	"context"
	"fmt"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/journal"
)

// listenForNodes serves the nodes of other processes.
func (e *Emulator) listenForNodes(background context.Context) error {
	endpoint, err := link.ParseEndpoint(e.config.Link.Listen)
	if err != nil {
		return err
	}
	nodes := &connected{Array: e.array, ids: map[string]bool{}}
	calls := &remoteCalls{e: e, open: map[uint64]*journal.Open{}}
	e.links, err = link.NewServer(link.ServerOptions{
		Array: nodes, TLS: e.config.Link.TLS, Log: e.log,
		Calls:     calls,
		Connected: func(n link.Node) error { return e.nodeConnected(background, nodes, n) },
		Disconnected: func(n link.Node) {
			nodes.set(n.ID, false)
			e.array.NodeGone(n.ID)
			calls.lose(n.ID)
		},
	})
	if err != nil {
		return err
	}
	listener, err := rpc.Listen(background, endpoint)
	if err != nil {
		return fmt.Errorf("listen for nodes: %w", err)
	}
	e.background.Go(func() {
		if err := e.links.Serve(background, listener); err != nil {
			e.log.ErrorContext(background, "nodes are not served any more", "error", err)
		}
	})
	return nil
}

// nodeConnected makes a node known, and detaches what it unstaged while the
// array was away.
func (e *Emulator) nodeConnected(ctx context.Context, nodes *connected, n link.Node) error {
	if err := e.array.SetNode(ctx, e.knownNode(n.ID, n.Topology)); err != nil {
		return err
	}
	if !e.profile.attaches() {
		if err := e.array.ReconcileLocal(ctx, n.ID, n.Staged); err != nil {
			return err
		}
	}
	nodes.set(n.ID, true)
	return nil
}

// connected is the array as nodes of other processes see it. What a node has
// staged is compared when it connects; until then it must not attach more,
// which the comparison would take for left over.
type connected struct {
	*array.Array
	mu  sync.Mutex
	ids map[string]bool
}

func (c *connected) set(nodeID string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[nodeID] = is
}

// AttachLocal is array.AttachLocal for nodes that are connected.
func (c *connected) AttachLocal(ctx context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error) {
	c.mu.Lock()
	is := c.ids[nodeID]
	c.mu.Unlock()
	if !is {
		return nil, fmt.Errorf("attach volume %s: node %s is not connected to the array yet: %w", volumeID, nodeID, backends.ErrUnavailable)
	}
	return c.Array.AttachLocal(ctx, volumeID, nodeID, readOnly)
}

// dialArray makes the connection of a node to the array of another process.
func (e *Emulator) dialArray(c Node) (*link.Client, error) {
	endpoint, err := link.ParseEndpoint(e.config.Link.Array)
	if err != nil {
		return nil, err
	}
	return link.NewClient(link.ClientOptions{
		Endpoint: endpoint, TLS: e.config.Link.TLS, NodeID: c.Name, Topology: e.profile.topologyOf(c), Log: e.log,
	})
}
