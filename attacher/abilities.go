package attacher

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/internal/role/pause"
)

// askEvery is how often a driver is asked again that does not say what it can do.
const askEvery = 500 * time.Millisecond

// abilities are those of a driver's capabilities that matter here.
type abilities struct {
	// publishes: without it there is nothing to call, and a VolumeAttachment is
	// attached once it exists.
	publishes bool
	// readOnly: without it readonly must be false (CSI, ControllerPublishVolume).
	readOnly bool
	// multiWriter has access modes of one node told apart.
	multiWriter bool
	// lists, and listsNodes: volumes can be listed, with where they are.
	lists, listsNodes bool
}

// watchDriver keeps the abilities while the driver comes and goes. One that comes
// back may be a newer version, which can do more or less.
func (c *controller) watchDriver(ctx context.Context) {
	c.driver.Watch(ctx, func(connected bool) {
		if !connected {
			c.away(status.Error(codes.Unavailable, "the connection is lost"))
			return
		}
		for ctx.Err() == nil {
			can, err := c.ask(ctx)
			if err == nil {
				c.log.Info("the driver is there", "publishes", can.publishes, "listsNodes", can.listsNodes)
				c.can.Store(can)
				c.knownOnce.Do(func() { close(c.known) })
				c.Status.driver(nil)
				c.retry(func(*attachment) bool { return true })
				return
			}
			c.away(err)
			if !c.driver.Connected() {
				return // Watch tells when it comes back
			}
			if pause.For(ctx, askEvery) != nil {
				return
			}
		}
	})
}

func (c *controller) away(why error) {
	c.can.Store(nil)
	c.Status.driver(why)
}

// ask asks the driver what it can do. One of another name ends the work.
func (c *controller) ask(ctx context.Context) (*abilities, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	identity, err := c.driver.Identity(ctx)
	if err != nil {
		return nil, err
	}
	if identity.Name != c.name {
		err := otherDriver(identity.Name, c.name)
		select {
		case c.failed <- err:
		default:
		}
		return nil, err
	}
	if !identity.Has(csi.PluginCapability_Service_CONTROLLER_SERVICE) {
		return &abilities{}, nil
	}
	has, err := c.driver.Controller(ctx)
	if err != nil {
		return nil, err
	}
	lists := has.Has(csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
	return &abilities{
		publishes:   has.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME),
		readOnly:    has.Has(csi.ControllerServiceCapability_RPC_PUBLISH_READONLY),
		multiWriter: has.Has(csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
		lists:       lists,
		listsNodes:  lists && has.Has(csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES),
	}, nil
}

// errAway is what is recorded while the driver is away.
func (c *controller) errAway() error {
	return status.Errorf(codes.Unavailable, "CSI driver %s cannot be called: it is away or not ready", c.name)
}
