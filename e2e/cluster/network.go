package cluster

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/csiemu/csiemu/e2e/process"
)

// network is the network of the cluster with that number: a bridge on which the
// host is .254 and node N is .N, each behind a pair of links.
type network int

func (n network) bridge() string       { return fmt.Sprintf("csiemu%d", n) }
func (n network) link(node int) string { return fmt.Sprintf("csiemu%d-%d", n, node) }

// host is the address of the host, at which the API server listens.
func (n network) host() string         { return fmt.Sprintf("10.98.%d.254", n) }
func (n network) node(node int) string { return fmt.Sprintf("10.98.%d.%d", n, node) }

// free reports whether no link of this machine has an address of the network.
func (n network) free() bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addresses {
		if prefix, ok := a.(*net.IPNet); ok && prefix.Contains(net.ParseIP(n.host())) {
			return false
		}
	}
	return true
}

// up makes the bridge.
func (n network) up(ctx context.Context) error {
	return ip(ctx, nil,
		"link add "+n.bridge()+" type bridge",
		"addr add "+n.host()+"/24 dev "+n.bridge(),
		"link set "+n.bridge()+" up")
}

// join connects a node, whose first process has that number, to the bridge.
func (n network) join(ctx context.Context, node, pid int, inside *process.Namespaces) error {
	link := n.link(node)
	if err := ip(ctx, nil,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, pid),
		fmt.Sprintf("link set %s master %s up", link, n.bridge())); err != nil {
		return err
	}
	return ip(ctx, inside,
		"link set lo up",
		"addr add "+n.node(node)+"/24 dev eth0",
		"link set eth0 up",
		"route add default via "+n.host())
}

// part takes the link of a node away.
func (n network) part(ctx context.Context, node int) error { return unlink(ctx, n.link(node)) }

// down takes the bridge and all links away that are there.
func (n network) down(ctx context.Context) error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the links of this machine: %w", err)
	}
	for _, l := range links {
		if l.Name == n.bridge() || strings.HasPrefix(l.Name, n.bridge()+"-") {
			if err := unlink(ctx, l.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlink removes a link, which may go by itself meanwhile: with its other end.
func unlink(ctx context.Context, link string) error {
	err := ip(ctx, nil, "link del "+link)
	if _, gone := net.InterfaceByName(link); gone != nil {
		return nil
	}
	return err
}

// ip runs commands of ip(8), in namespaces unless they are nil.
func ip(ctx context.Context, in *process.Namespaces, commands ...string) error {
	for _, c := range commands {
		if _, err := process.Output(ctx, process.Command{Path: "ip", Args: strings.Fields(c), In: in}); err != nil {
			return err
		}
	}
	return nil
}
