package driver_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csiemu/csiemu/internal/role/driver"
)

// soon bounds waits for what happens at once on a machine that is not busy.
const soon = 20 * time.Second

// identity is a driver that is nothing but its identity.
type identity struct {
	csi.UnimplementedIdentityServer
	name    string
	ready   atomic.Bool
	noProbe bool
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "v1"}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (i *identity) Probe(ctx context.Context, r *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if i.noProbe {
		return i.UnimplementedIdentityServer.Probe(ctx, r)
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(i.ready.Load())}, nil
}

// socket is a path short enough for a socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "csi.sock")
}

// serve serves a driver until stop is called.
func serve(t *testing.T, path string, i *identity) (stop func()) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, i)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	t.Cleanup(stop)
	return stop
}

func ready(name string) *identity {
	i := &identity{name: name}
	i.ready.Store(true)
	return i
}

func dial(t *testing.T, address string, o driver.Options) *driver.Driver {
	t.Helper()
	d, err := driver.Dial(address, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}
