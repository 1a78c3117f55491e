package link_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestShortSecretsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := link.SharedSecret([]byte("123456789012345"))
	require.ErrorContains(t, err, "it has 15 bytes, and 16 random ones are needed")
	_, err = link.SharedSecret(nil)
	require.Error(t, err)
}

// strict fails the test when anything reaches the array.
func strict(t *testing.T, log *text) link.ServerOptions {
	return link.ServerOptions{
		Array: &array{errs: map[string]error{"": context.Canceled}}, Log: log.logger(),
		Connected: func(n link.Node) error { t.Errorf("node %s was let in", n.ID); return nil },
	}
}

func TestAnotherSecretIsRefusedByBothEnds(t *testing.T) {
	t.Parallel()
	var log text
	s := serve(t, socket(t), strict(t, &log))
	c := client(t, link.ClientOptions{Endpoint: s.endpoint, TLS: secret(t, "0123456789abcdeg")})
	err := exists(c, t.Context(), "vol-1")
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.ErrorContains(t, err, "the other end does not have the same shared secret")
	require.Eventually(t, func() bool { return log.String() != "" }, patience, time.Millisecond)
	require.Contains(t, log.String(), "refused a connection that does not prove the shared secret")

	run(t, c, newLocal())
	_ = requireRefused(t, c, "the other end does not have the same shared secret")
	require.Empty(t, s.Nodes())
}

// stranger connects as something that is no csiemu.
func stranger(t *testing.T, e rpc.Endpoint, c credentials.TransportCredentials) linkpb.ArrayClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///array", grpc.WithTransportCredentials(c),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, e.Network, e.Address)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return linkpb.NewArrayClient(conn)
}

func TestStrangersGetNothing(t *testing.T) {
	t.Parallel()
	other := secret(t, "another secret, long enough").Clone()
	other.VerifyConnection = nil // trusts anybody
	cases := map[string]credentials.TransportCredentials{
		"no TLS":                      insecure.NewCredentials(),
		"TLS without a certificate":   credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"another secret, unsuspected": credentials.NewTLS(other),
		"TLS 1.2": credentials.NewTLS(func() *tls.Config {
			old := rightSecret(t).Clone()
			old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return old
		}()),
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log text
			s := serve(t, socket(t), strict(t, &log))
			_, err := stranger(t, s.endpoint, c).SizeOf(t.Context(), &linkpb.SizeOfRequest{VolumeId: "vol-1"})
			require.Error(t, err)
			require.Eventually(t, func() bool { return log.String() != "" }, patience, time.Millisecond)
			require.Contains(t, log.String(), "refused a connection")
		})
	}
	t.Run("the right secret", func(t *testing.T) {
		t.Parallel()
		s := serve(t, socket(t), link.ServerOptions{})
		_, err := stranger(t, s.endpoint, credentials.NewTLS(rightSecret(t))).SizeOf(t.Context(), &linkpb.SizeOfRequest{VolumeId: "v"})
		require.NoError(t, err)
	})
}

// An array that is none, with TLS of its own or without, gets nothing either.
func TestTheNodeRefusesAFalseArray(t *testing.T) {
	t.Parallel()
	e := socket(t)
	lis, err := rpc.Listen(t.Context(), e)
	require.NoError(t, err)
	s := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	defer func() {
		s.Stop()
		require.NoError(t, <-served)
	}()
	c := client(t, link.ClientOptions{Endpoint: e})
	require.ErrorIs(t, exists(c, t.Context(), "vol-1"), backends.ErrUnavailable)
}

// A connection that says nothing, as from a probe of the port, must not keep the
// array from stopping.
func TestASilentConnectionDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	conn, err := net.Dial(s.endpoint.Network, s.endpoint.Address)
	require.NoError(t, err)
	defer conn.Close()
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	_, err = c.SizeOf(t.Context(), "v")
	require.NoError(t, err, "the silent one was accepted before")
	start := time.Now()
	s.stop()
	require.Less(t, time.Since(start), 90*time.Second, "gRPC alone takes two minutes")
}
