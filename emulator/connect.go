package emulator

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// listenForNodes serves the nodes of other processes.
func (e *Emulator) listenForNodes(background context.Context) error {
	endpoint, err := link.ParseEndpoint(e.config.Link.Listen)
	if err != nil {
		return err
	}
	e.links, err = link.NewServer(link.ServerOptions{
		Array: e.array, TLS: e.config.Link.TLS, Log: e.log,
		Connected: func(n link.Node) { e.nodeConnected(background, n) },
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
func (e *Emulator) nodeConnected(ctx context.Context, n link.Node) {
	if err := e.array.SetNode(ctx, e.knownNode(n.ID, n.Topology)); err != nil {
		e.log.ErrorContext(ctx, "node is not recorded", "node", n.ID, "error", err)
	}
	if e.profile.attaches() {
		return
	}
	if err := e.array.ReconcileLocal(ctx, n.ID, n.Staged); err != nil {
		e.log.ErrorContext(ctx, "volumes that the node does not use any more are not detached", "node", n.ID, "error", err)
	}
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
