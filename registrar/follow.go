package registrar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/pause"
)

// nodeTimeout bounds NodeGetInfo, as the kubelet does.
const nodeTimeout = 2 * time.Minute

// identity is a driver as it answered after a connection was made.
type identity struct {
	driver.Identity
	// node is what NodeGetInfo said; nil if it was not asked yet or did not
	// answer.
	node *csi.NodeGetInfoResponse
}

// sameNode reports whether two identities are of the same node in the same place.
// What is not known is not another.
func (i identity) sameNode(other identity) bool {
	if i.node == nil || other.node == nil {
		return true
	}
	return i.node.GetNodeId() == other.node.GetNodeId() &&
		maps.Equal(i.node.GetAccessibleTopology().GetSegments(), other.node.GetAccessibleTopology().GetSegments())
}

// follower asks the driver who it is, at the start and whenever it comes back.
type follower struct {
	c      Config
	driver *driver.Driver
	report *reporter
	// again has a value after a connection was made.
	again chan struct{}
	// named and offers get the driver as soon as it told its name, nodes once it
	// told its node too. Those that nobody waits for are nil.
	named, offers, nodes *mailbox[identity]
}

// errLost is the problem while the driver is away.
var errLost = errors.New("lost the connection to the driver: waiting for it to come back")

// watch follows the connection.
func (f *follower) watch(ctx context.Context) error {
	was := false
	f.driver.Watch(ctx, func(connected bool) {
		switch {
		case connected:
			f.report.problem(partDriver, nil, func(s *State) { s.DriverReachable = true })
			select {
			case f.again <- struct{}{}:
			default:
			}
		case was:
			f.report.problem(partDriver, errLost, func(s *State) { s.DriverReachable = false })
		}
		was = connected
	})
	return nil
}

// run asks until ctx ends.
func (f *follower) run(ctx context.Context) error {
	for {
		retry := pause.Doubling{First: time.Second, Most: 30 * time.Second}
		for {
			err := f.ask(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				break
			}
			f.report.problem(partDriver, err, nil)
			if retry.Wait(ctx) != nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.again:
		}
	}
}

// ask waits for the driver and publishes who it is.
func (f *follower) ask(ctx context.Context) error {
	err := f.driver.Await(ctx, func(reason error) {
		f.report.problem(partDriver, fmt.Errorf("wait for the driver: %w", reason), nil)
	})
	if err != nil {
		return err
	}
	select {
	case <-f.again: // of the connection that is there
	default:
	}
	bounded, cancel := context.WithTimeout(ctx, f.c.Timeout)
	defer cancel()
	found, err := f.driver.Identity(bounded)
	if err != nil {
		return err
	}
	id := identity{Identity: found}
	f.report.problem(partDriver, nil, func(s *State) {
		if s.Driver != found.Name {
			// What was true was so of another driver.
			s.Registered = false
			if s.CSIDriverObject != "" {
				s.CSIDriverObject = CSIDriverPending
			}
		}
		s.Driver, s.DriverReachable = found.Name, true
	})
	f.c.Log.Info("the driver is ready", "driver", found.Name, "version", found.VendorVersion)
	f.named.put(id)
	f.offers.put(id)

	id.node, err = nodeInfo(ctx, f.driver)
	if err != nil && f.nodes != nil {
		return err
	}
	if err != nil {
		// The kubelet asks as well, and says what it thinks of the answer.
		f.c.Log.Debug("the driver does not tell its node", "driver", found.Name, "error", err)
		return nil
	}
	f.report.node(id.node)
	f.offers.put(id)
	f.nodes.put(id)
	return nil
}

// node puts what NodeGetInfo said into the state.
func (r *reporter) node(info *csi.NodeGetInfoResponse) {
	r.update(func(s *State) {
		if s.NodeID != "" && !s.isNode(info) {
			s.Registered = false // that was another node
		}
		s.NodeID, s.MaxVolumes = info.GetNodeId(), info.GetMaxVolumesPerNode()
		s.Topology = maps.Clone(info.GetAccessibleTopology().GetSegments())
	})
}

// isNode reports whether the state is that of a node.
func (s *State) isNode(info *csi.NodeGetInfoResponse) bool {
	return s.NodeID == info.GetNodeId() && maps.Equal(s.Topology, info.GetAccessibleTopology().GetSegments())
}

// nodeInfo asks for the node and checks the answer as the kubelet does.
func nodeInfo(ctx context.Context, d *driver.Driver) (*csi.NodeGetInfoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	info, err := csi.NewNodeClient(d.Conn()).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask driver %s for its node: %w", d.Name(), err)
	}
	if info.GetNodeId() == "" {
		return nil, fmt.Errorf("ask driver %s for its node: the node id is empty", d.Name())
	}
	return info, nil
}
