package link_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestCallsOfTheNode(t *testing.T) {
	t.Parallel()
	for _, e := range []rpc.Endpoint{socket(t), {Network: "tcp", Address: "127.0.0.1:0"}} {
		s := serve(t, e, link.ServerOptions{})
		c := client(t, link.ClientOptions{Endpoint: s.endpoint})
		require.NoError(t, exists(c, t.Context(), "vol-1"), "a call needs no session")
		publish, err := c.AttachLocal(t.Context(), "vol-1", "node-1", true)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"volume": "vol-1", "node": "node-1", "readOnly": "true"}, publish)
		require.NoError(t, c.DetachLocal(t.Context(), "vol-1", "node-1"))
		require.ErrorIs(t, c.DetachLocal(t.Context(), "vol-1", "node-1"), backends.ErrNotFound)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	kinds := []error{
		backends.ErrInvalid, backends.ErrNotFound, backends.ErrExists, backends.ErrPrecondition, backends.ErrExhausted,
		backends.ErrOutOfRange, backends.ErrAborted, backends.ErrUnavailable, backends.ErrDataLoss,
		backends.ErrHeld,
	}
	a := &array{errs: map[string]error{"other": errors.New("open x: permission denied")}}
	for _, kind := range kinds {
		a.errs[kind.Error()] = fmt.Errorf("find volume v: %w", kind)
	}
	s := serve(t, socket(t), link.ServerOptions{Array: a})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	for i, kind := range kinds {
		_, err := c.AttachLocal(t.Context(), kind.Error(), "n", false)
		require.ErrorIs(t, err, kind)
		require.ErrorContains(t, err, "find volume v")
		for j, other := range kinds {
			require.Equal(t, i == j, errors.Is(err, other), "%v is %v", err, other)
		}
		require.Equal(t, rpcCode(kind), rpcCode(err))
	}
	err := exists(c, t.Context(), "other")
	require.ErrorContains(t, err, "permission denied")
	for _, kind := range kinds {
		require.NotErrorIs(t, err, kind)
	}
	require.ErrorContains(t, exists(c, t.Context(), "panics"), "fault of its own")
}

// rpcCode is the CSI status that the node answers with such an error.
func rpcCode(err error) codes.Code { return status.Code(rpc.Status(err)) }

func TestDeadlinesReachTheArray(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := exists(c, ctx, "blocks")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, backends.ErrUnavailable)

	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- exists(c, ctx, "blocks") }()
	cancel()
	require.ErrorIs(t, receive(t, done), context.Canceled)
}

func TestNoArrayIsUnavailable(t *testing.T) {
	t.Parallel()
	c := client(t, link.ClientOptions{Endpoint: socket(t)})
	err := exists(c, t.Context(), "vol-1")
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.ErrorContains(t, err, "array.sock")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Ready(ctx), context.DeadlineExceeded)
}

func TestStoppedArrayIsUnavailable(t *testing.T) {
	t.Parallel()
	s, c := connected(t, newLocal())
	done := make(chan error, 1)
	go func() { done <- exists(c, t.Context(), "blocks") }()
	s.stop()
	require.ErrorIs(t, receive(t, done), backends.ErrUnavailable)
	require.ErrorIs(t, exists(c, t.Context(), "vol-1"), backends.ErrUnavailable)
	require.NoFileExists(t, s.endpoint.Address)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := link.NewServer(link.ServerOptions{Array: &array{}})
	require.ErrorContains(t, err, "TLS")
	_, err = link.NewServer(link.ServerOptions{TLS: rightSecret(t)})
	require.ErrorContains(t, err, "array")
	_, err = link.NewClient(link.ClientOptions{NodeID: "n"})
	require.ErrorContains(t, err, "TLS")
	for _, id := range []string{"", string(make([]byte, 257))} {
		_, err = link.NewClient(link.ClientOptions{NodeID: id, TLS: rightSecret(t)})
		require.ErrorIs(t, err, backends.ErrInvalid)
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	t.Parallel()
	s, err := link.NewServer(link.ServerOptions{Array: &array{}, TLS: rightSecret(t)})
	require.NoError(t, err)
	lis, err := rpc.Listen(t.Context(), socket(t))
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	require.ErrorIs(t, s.Serve(t.Context(), lis), net.ErrClosed)
}
