package rpc_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// patience bounds what a test waits for.
const patience = time.Minute

// played is a server on a socket whose methods wait until they are told.
type played struct {
	path  string
	conn  *grpc.ClientConn
	began chan context.Context
	end   chan struct{}
	stop  context.CancelFunc
	ended chan error
}

func play(t *testing.T, grace time.Duration) *played {
	t.Helper()
	p := &played{
		path:  filepath.Join(socketDir(t), "csi.sock"),
		began: make(chan context.Context, 1), end: make(chan struct{}), ended: make(chan error, 1),
	}
	l := listen(t, p.path)
	s := grpc.NewServer(rpc.ServerOptions(rpc.Options{Locked: []rpc.Step{answer(func(ctx context.Context, _ *rpc.Call) error {
		p.began <- ctx
		select {
		case <-p.end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})}})...)
	register(s, &services{})
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() { p.ended <- rpc.Serve(ctx, s, l, grace) }()
	var err error
	p.conn, err = grpc.NewClient("unix://"+p.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.conn.Close()) })
	return p
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func (p *played) call(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call(ctx, p.conn, &csi.ProbeRequest{}) }()
	return done
}

func TestServeLetsCallsEnd(t *testing.T) {
	t.Parallel()
	p := play(t, time.Hour)
	done := p.call(t.Context())
	ctx := receive(t, p.began)
	p.stop()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", p.path)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, time.Millisecond)
	require.NoError(t, ctx.Err())
	close(p.end)
	require.NoError(t, receive(t, done))
	require.NoError(t, receive(t, p.ended))
	require.NoFileExists(t, p.path)
}

func TestServeEndsCallsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, 20 * time.Millisecond} {
		p := play(t, grace)
		done := p.call(t.Context())
		receive(t, p.began)
		p.stop()
		require.Equal(t, codes.Unavailable, status.Code(receive(t, done)))
		require.NoError(t, receive(t, p.ended))
	}
}

func TestServeDoesNotWaitForSilentConnections(t *testing.T) {
	t.Parallel()
	p := play(t, time.Hour)
	silent, err := net.Dial("unix", p.path)
	require.NoError(t, err)
	defer silent.Close()
	done := p.call(t.Context())
	receive(t, p.began) // so that the silent one was accepted
	close(p.end)
	require.NoError(t, receive(t, done))
	p.stop()
	require.NoError(t, receive(t, p.ended))
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	t.Parallel()
	l := listen(t, filepath.Join(socketDir(t), "csi.sock"))
	require.NoError(t, l.Close())
	require.ErrorIs(t, rpc.Serve(t.Context(), grpc.NewServer(), l, 0), net.ErrClosed)
}
