package demo

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// client is the demo's own orchestrator, as far as one node is concerned.
type client struct {
	conn       *grpc.ClientConn
	node       csi.NodeClient
	controller csi.ControllerClient
	nodeID     string
	attaches   bool
}

// newClients connects to the endpoints of nodes. The first one's is the
// controller's, too. The caller closes the connections, also after an error.
func newClients(ctx context.Context, s *server, nodes []string) ([]*client, error) {
	var clients []*client
	for _, node := range nodes {
		conn, err := s.dial(node)
		if err != nil {
			return clients, err
		}
		c := &client{conn: conn, node: csi.NewNodeClient(conn)}
		clients = append(clients, c)
		c.controller = csi.NewControllerClient(clients[0].conn)
		if err := c.look(ctx); err != nil {
			return clients, fmt.Errorf("ask the driver on %s: %w", node, err)
		}
	}
	return clients, nil
}

// look asks the driver what it can do.
func (c *client) look(ctx context.Context) error {
	info, err := c.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	c.nodeID = info.GetNodeId()
	can, err := c.controller.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return err
	}
	for _, capability := range can.GetCapabilities() {
		if capability.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			c.attaches = true
		}
	}
	return nil
}
