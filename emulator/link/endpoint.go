package link

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// ParseEndpoint reads where the array awaits its nodes: unix:///path.sock or
// tcp://host:port. The host may be empty to listen on all addresses.
func ParseEndpoint(s string) (rpc.Endpoint, error) {
	scheme, address, found := strings.Cut(s, "://")
	if !found || !strings.EqualFold(scheme, "tcp") {
		e, err := rpc.ParseUnix(s)
		if err != nil {
			return rpc.Endpoint{}, fmt.Errorf("%w, or tcp://host:port", err)
		}
		return e, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return rpc.Endpoint{}, fmt.Errorf("parse endpoint %q: want tcp://host:port: %w", s, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return rpc.Endpoint{}, fmt.Errorf("parse endpoint %q: port %q is not a number below 65536", s, port)
	} else if strings.ContainsAny(host, "/ ") {
		return rpc.Endpoint{}, fmt.Errorf("parse endpoint %q: %q is no host", s, host)
	} else {
		port = strconv.FormatUint(n, 10)
	}
	return rpc.Endpoint{Network: "tcp", Address: net.JoinHostPort(host, port)}, nil
}
