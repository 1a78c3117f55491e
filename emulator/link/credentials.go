package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
)

// guard logs the connections that TLS refuses: gRPC itself drops them in
// silence, and the owner of the array would not know why a node stays away.
type guard struct {
	credentials.TransportCredentials
	log *slog.Logger
}

func newGuard(config *tls.Config, log *slog.Logger) credentials.TransportCredentials {
	return &guard{credentials.NewTLS(config), log}
}

// ServerHandshake implements credentials.TransportCredentials.
func (g *guard) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := g.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, io.EOF) {
			// Somebody looked whether the port is open.
			level = slog.LevelDebug
		}
		g.log.LogAttrs(context.Background(), level, "refused a connection that does not prove the shared secret",
			slog.String("from", conn.RemoteAddr().String()), slog.String("error", err.Error()))
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (g *guard) Clone() credentials.TransportCredentials {
	return &guard{g.TransportCredentials.Clone(), g.log}
}
