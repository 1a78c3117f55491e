package main

import (
	"fmt"
	"path/filepath"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// checkSockets refuses a socket that is given for two things. The endpoints have
// been read before.
func (f *serveFlags) checkSockets(nodes []emulator.Node) error {
	used := map[string]string{}
	use := func(by string, e rpc.Endpoint, err error) error {
		if err != nil {
			return usage("read %s: %w", by, err)
		}
		if e.Network != "unix" {
			return nil
		}
		path, err := filepath.Abs(e.Address)
		if err != nil {
			return usage("read %s: %w", by, err)
		}
		if other, twice := used[path]; twice {
			return usage("read %s: socket %s is that of %s: give each its own", by, path, other)
		}
		used[path] = by
		return nil
	}
	endpoint, err := rpc.ParseEndpoint(f.endpoint)
	if err := use("--endpoint", endpoint, err); err != nil {
		return err
	}
	for _, n := range nodes[min(1, len(nodes)):] { // the first is on the endpoint
		endpoint, err := rpc.ParseEndpoint(n.Endpoint)
		if err := use(fmt.Sprintf("--node %s", n.Name), endpoint, err); err != nil {
			return err
		}
	}
	if f.admin != "" {
		endpoint, err := admin.ParseAddress(f.admin)
		if err := use("--admin", endpoint, err); err != nil {
			return err
		}
	}
	if f.arrayListen == "" {
		return nil
	}
	endpoint, err = link.ParseEndpoint(f.arrayListen)
	return use("--array-listen", endpoint, err)
}
