package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// address is where a driver listens.
type address struct{ network, where string }

// CheckAddress says what is wrong with an address of Dial.
func CheckAddress(text string) error {
	_, err := parse(text)
	return err
}

// parse reads an address as the CSI sidecars take it. Any other scheme is refused,
// as it would be taken for a path otherwise.
func parse(text string) (address, error) {
	if text == "" {
		return address{}, errors.New("the address is empty: give a path, unix://PATH or tcp://HOST:PORT")
	}
	if where, is := strings.CutPrefix(text, "tcp://"); is {
		if _, _, err := net.SplitHostPort(where); err != nil {
			return address{}, fmt.Errorf("the address is no tcp://HOST:PORT: %w", err)
		}
		return address{"tcp", where}, nil
	}
	where, is := strings.CutPrefix(text, "unix://")
	if !is {
		where = strings.TrimPrefix(text, "unix:")
	}
	switch {
	case where == "":
		return address{}, errors.New("the address has no path: give unix://PATH")
	case !is && strings.Contains(where, "://"):
		return address{}, errors.New("the scheme is unknown: give a path, unix://PATH or tcp://HOST:PORT")
	}
	if len(where) > longestPath {
		return address{}, fmt.Errorf("the path has %d bytes, a socket's has %d at most", len(where), longestPath)
	}
	return address{"unix", where}, nil
}

// longestPath is the room for a path in sockaddr_un (unix(7)), without its zero byte.
const longestPath = 107

func (a address) dial(ctx context.Context, _ string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, a.network, a.where)
}
