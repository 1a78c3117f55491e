package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// DefaultAddress is where clients look for an endpoint that nobody named.
const DefaultAddress = "127.0.0.1:9810"

// ParseAddress reads the address of an admin endpoint: host:port with a loopback
// host, or unix:///path. Anything else is backends.ErrInvalid: whoever reaches the
// endpoint may break volumes.
func ParseAddress(address string) (rpc.Endpoint, error) {
	invalid := func(format string, args ...any) (rpc.Endpoint, error) {
		return rpc.Endpoint{}, fmt.Errorf("read the admin address %q: "+format+": %w", append(append([]any{address}, args...), backends.ErrInvalid)...)
	}
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "/") {
		e, err := rpc.ParseUnix(address)
		if err != nil {
			return rpc.Endpoint{}, errors.Join(err, backends.ErrInvalid)
		}
		return e, nil
	}
	hostPort := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || port == "" {
		return invalid("it is neither host:port nor unix:///path")
	}
	if !isLoopback(host) {
		return invalid("%q is not this machine alone; give a port of 127.0.0.1, or unix:///path", host)
	}
	return rpc.Endpoint{Network: "tcp", Address: hostPort}, nil
}

// isLoopback reports whether a host as URLs have it is this machine itself.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// Listen listens on the address of an admin endpoint (ParseAddress), a Unix socket
// for its owner only. A socket that a dead process left is replaced. Close removes
// the socket.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	e, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	l, err := rpc.Listen(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("listen for the admin endpoint: %w", err)
	}
	return l, nil
}

// Address is where a listener can be reached, in the form of ParseAddress.
func Address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix://" + l.Addr().String()
	}
	return l.Addr().String()
}
