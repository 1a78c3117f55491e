package emulator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/journal"
)

// Services says which half of the driver an emulator is.
type Services string

const (
	// AllServices is the array and its nodes in one process.
	AllServices Services = "all"
	// ControllerService is the array alone; its nodes are other processes,
	// which connect to Config.Link.Listen.
	ControllerService Services = "controller"
	// NodeService is one node alone; the array is the process at
	// Config.Link.Array.
	NodeService Services = "node"
)

// DefaultPool is the capacity pool of volumes whose class names none.
const DefaultPool = "default"

// Config describes an emulator. The zero value of each field is usable, except
// for Backend.
type Config struct {
	// Profile is how the driver behaves; the zero value means
	// DefaultProfile of the backend.
	Profile *Profile
	// Backend keeps the bytes. New takes it over and closes it.
	Backend backends.Backend
	// StateDir holds the array's and the nodes' records and, for most
	// backends, the volumes. Empty keeps records in memory; then nothing
	// survives the process.
	StateDir string
	// Pools are the capacity pools with their sizes in bytes; none means one
	// pool, DefaultPool, of DefaultPoolBytes.
	Pools map[string]int64
	// Nodes are the nodes that this process serves; none means one node named
	// like the host, on the emulator's own endpoint.
	Nodes []Node
	// Services is the half to serve; empty means AllServices.
	Services Services
	// Link connects array and nodes in different processes.
	Link Link
	// Sync makes records and bytes survive a lost machine, not only a killed
	// process.
	Sync bool
	// StrictLocks answers ABORTED to any second call on a volume that has one
	// under way, as many drivers do.
	StrictLocks bool
	// Strict refuses what the specification forbids but a caller may be
	// forgiven for: maps and lists past their limit, and with CheckCaller calls
	// that break the volume lifecycle.
	Strict bool
	// Journal keeps the calls; nil means one of journal.DefaultCapacity.
	Journal *journal.Journal
	// CheckCaller has a lifecycle.Checker look at every call. What it finds is
	// in the journal and in the log.
	CheckCaller bool
	// MinBackoff is lifecycle.Options.MinBackoff.
	MinBackoff time.Duration
	// Seed is that of the percentages of faults.
	Seed uint64
	// Crash ends the process for the fault crash; nil means as kill -9 does. If
	// it returns, the call goes on.
	Crash func(step string)
	// Log receives one line a call and what start-up found; nil is silent.
	Log *slog.Logger
}

// Node is a node that an emulator serves.
type Node struct {
	// Name is the node id: at most 256 bytes.
	Name string
	// Endpoint is the CSI endpoint, unix:///path.sock. It stays empty for the
	// first node, which is served on the emulator's own endpoint.
	Endpoint string
	// Topology are the node's topology segments.
	Topology map[string]string
}

// Link says how the array and nodes of other processes find and trust each
// other.
type Link struct {
	// Listen is where the array awaits its nodes: unix:///path.sock or
	// tcp://host:port.
	Listen string
	// Array is where a node finds the array, in the same form.
	Array string
	// TLS authenticates both ends; see link.SharedSecret.
	TLS *tls.Config
}

// DefaultPoolBytes is the size of the default pool: 100 GiB. Volumes are thin,
// so that a pool may promise more than the store holds.
const DefaultPoolBytes = 100 << 30

// withDefaults checks a configuration and fills in what it left out.
func (c Config) withDefaults() (Config, error) {
	invalid := func(format string, args ...any) (Config, error) {
		return c, fmt.Errorf(format+": %w", append(args, backends.ErrInvalid)...)
	}
	if c.Profile == nil {
		c.Profile = DefaultProfile(c.Backend.Name())
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Journal == nil {
		c.Journal = journal.New(journal.Options{})
	}
	if c.Crash == nil {
		c.Crash = crashNow
	}
	if len(c.Pools) == 0 {
		c.Pools = map[string]int64{DefaultPool: DefaultPoolBytes}
	}
	for name, size := range c.Pools {
		if size <= 0 {
			return invalid("pool %q has %d bytes; give it more", name, size)
		}
	}
	if c.Services == "" {
		c.Services = AllServices
	}
	if len(c.Nodes) == 0 && c.Services != ControllerService {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("name the node like its host: %w", err)
		}
		c.Nodes = []Node{{Name: name}}
	}
	switch c.Services {
	case AllServices:
	case ControllerService:
		if len(c.Nodes) > 0 {
			return invalid("a controller service has no nodes of its own; serve %q with its own process", c.Nodes[0].Name)
		}
		if c.Link.Listen == "" {
			return invalid("a controller service needs Link.Listen, where its nodes connect")
		}
	case NodeService:
		if len(c.Nodes) != 1 || c.Link.Array == "" {
			return invalid("a node service is one node and needs Link.Array, where its array listens")
		}
	default:
		return invalid("services %q are not known: all, controller or node", c.Services)
	}
	if (c.Link.Listen != "" || c.Link.Array != "") && c.Link.TLS == nil {
		return invalid("array and nodes in different processes need Link.TLS; see link.SharedSecret")
	}
	for _, n := range c.Nodes {
		if len(n.Topology) > 0 {
			profile := *c.Profile
			profile.EnableTopology()
			c.Profile = &profile
			break
		}
	}
	return c, errors.Join(rpc.CheckDriverName(c.Profile.DriverName), c.checkNodes())
}

// checkNodes refuses node names, topology segments and endpoints that cannot be,
// or that are used twice.
func (c Config) checkNodes() error {
	names, endpoints := map[string]bool{}, map[string]bool{}
	for i, n := range c.Nodes {
		if err := errors.Join(rpc.CheckNodeID(n.Name), rpc.CheckTopology(c.Profile.topologyOf(n))); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		switch {
		case names[n.Name]:
			return fmt.Errorf("node %q is given twice: %w", n.Name, backends.ErrInvalid)
		case i == 0 && n.Endpoint != "":
			return fmt.Errorf("node %q: the first node is served on the emulator's own endpoint, not on %s: %w", n.Name, n.Endpoint, backends.ErrInvalid)
		case n.Endpoint != "" && endpoints[n.Endpoint]:
			return fmt.Errorf("node %q: its endpoint is that of another node: %w", n.Name, backends.ErrInvalid)
		}
		names[n.Name], endpoints[n.Endpoint] = true, true
	}
	return nil
}

// defaultPool is DefaultPool, or the only pool where there is one of another
// name.
func (c Config) defaultPool() string {
	if len(c.Pools) == 1 {
		for name := range c.Pools {
			return name
		}
	}
	return DefaultPool
}
