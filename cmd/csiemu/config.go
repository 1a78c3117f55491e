package main

import (
	"os"
	"strings"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// config turns the flags into a configuration; its errors are mistakes of the
// command line.
func (f *serveFlags) config() (emulator.Config, error) {
	f.trim()
	if f.endpoint == "" {
		return emulator.Config{}, usage("no endpoint: give --endpoint unix:///path/csi.sock, or set CSI_ENDPOINT")
	}
	if _, err := rpc.ParseEndpoint(f.endpoint); err != nil {
		return emulator.Config{}, usage("read --endpoint: %w", err)
	}
	if err := store.Check(f.backend, f.stateDir); err != nil {
		return emulator.Config{}, usageError{err}
	}
	profile, err := f.profile()
	if err != nil {
		return emulator.Config{}, err
	}
	pools, err := parsePools(f.capacity)
	if err != nil {
		return emulator.Config{}, err
	}
	ends, err := f.link()
	if err != nil {
		return emulator.Config{}, err
	}
	nodes, err := f.parseNodes()
	if err != nil {
		return emulator.Config{}, err
	}
	if err := f.checkAdmin(); err != nil {
		return emulator.Config{}, err
	}
	if err := f.checkSockets(nodes); err != nil {
		return emulator.Config{}, err
	}
	// The calls to a node alone are checked by its array, which hears of them.
	check := emulator.Services(f.services) != emulator.NodeService
	return emulator.Config{
		Profile: profile, StateDir: f.stateDir, Pools: pools, Nodes: nodes,
		Services: emulator.Services(f.services), Link: ends,
		Sync: f.sync, Strict: f.strict, StrictLocks: f.strict, CheckCaller: check,
	}, nil
}

// trim removes the spaces around values of lists, as in CSIEMU_NODE="a, b".
func (f *serveFlags) trim() {
	for _, values := range [][]string{f.nodes, f.topology, f.capacity, f.disable} {
		for i, value := range values {
			values[i] = strings.TrimSpace(value)
		}
	}
}

func (f *serveFlags) profile() (*emulator.Profile, error) {
	p := emulator.DefaultProfile(f.backend)
	if f.driverName != "" {
		p.DriverName = f.driverName
		if p.NodeTopologyKey != "" {
			p.NodeTopologyKey = "topology." + f.driverName + "/node"
		}
	}
	if f.attachLimit < 0 {
		return nil, usage("read --attach-limit: %d is negative: give 0 for no limit", f.attachLimit)
	}
	if f.attachLimit > 0 && f.noAttach {
		return nil, usage("--attach-limit limits what --no-attach does without: give one of them")
	}
	p.MaxVolumesPerNode = f.attachLimit
	if len(f.topology) > 0 {
		p.EnableTopology()
	}
	if f.noAttach {
		p.Disable("PUBLISH_UNPUBLISH_VOLUME")
	}
	if f.volumeCondition {
		p.EnableVolumeCondition()
	}
	for _, name := range f.disable {
		if !p.Disable(strings.ToUpper(name)) {
			return nil, usage("read --disable: the specification has no capability %q: give one as in EXPAND_VOLUME", name)
		}
	}
	return p, nil
}

// parseNodes reads --node and --topology.
func (f *serveFlags) parseNodes() ([]emulator.Node, error) {
	segments := map[string]string{}
	for _, value := range f.topology {
		key, segment, ok := strings.Cut(value, "=")
		if !ok || key == "" || segment == "" {
			return nil, usage("read --topology: %q is no segment: give KEY=VALUE", value)
		}
		if _, twice := segments[key]; twice {
			return nil, usage("read --topology: segment %q is given twice", key)
		}
		segments[key] = segment
	}
	values := f.nodes
	if len(values) == 0 && len(segments) > 0 {
		host, err := os.Hostname()
		if err != nil {
			return nil, usage("name the node like the host: %w: give --node NAME", err)
		}
		values = []string{host}
	}
	var nodes []emulator.Node
	for i, value := range values {
		name, endpoint, _ := strings.Cut(value, "=")
		if name == "" {
			return nil, usage("read --node: %q names no node: give NAME or NAME=unix://PATH.sock", value)
		}
		if i == 0 && endpoint != "" {
			return nil, usage("read --node: %q: the first node is served on --endpoint: give its name only", value)
		}
		if i > 0 && endpoint == "" {
			return nil, usage("read --node: %q has no socket: give %s=unix://PATH.sock, as only the first is served on --endpoint", value, name)
		}
		if i > 0 {
			if _, err := rpc.ParseEndpoint(endpoint); err != nil {
				return nil, usage("read --node: %w", err)
			}
		}
		nodes = append(nodes, emulator.Node{Name: name, Endpoint: endpoint, Topology: segments})
	}
	return nodes, nil
}
