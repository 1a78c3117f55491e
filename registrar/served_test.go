package registrar_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/registrar"
)

// soon bounds waits for what happens at once on a machine that is not busy.
const soon = 30 * time.Second

// shortDir is a directory with a path short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// process is a driver that can end and come back at its socket, as another one.
type process struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csi.UnimplementedControllerServer
	identity   csi.IdentityClient
	node       csi.NodeClient
	controller csi.ControllerClient
}

func (p process) GetPluginInfo(ctx context.Context, r *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return p.identity.GetPluginInfo(ctx, r)
}

func (p process) GetPluginCapabilities(ctx context.Context, r *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return p.identity.GetPluginCapabilities(ctx, r)
}

func (p process) Probe(ctx context.Context, r *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return p.identity.Probe(ctx, r)
}

func (p process) NodeGetInfo(ctx context.Context, r *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return p.node.NodeGetInfo(ctx, r)
}

func (p process) NodeGetCapabilities(ctx context.Context, r *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return p.node.NodeGetCapabilities(ctx, r)
}

func (p process) ControllerGetCapabilities(ctx context.Context, r *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return p.controller.ControllerGetCapabilities(ctx, r)
}

// serveDriver serves a double at a socket until stop.
func serveDriver(t *testing.T, path string, double *csitest.Double) (stop func()) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	p := process{identity: double.Identity(), node: double.Nodes()[0], controller: double.Controller()}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, p)
	csi.RegisterNodeServer(server, p)
	csi.RegisterControllerServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	t.Cleanup(stop)
	return stop
}

// running is a registrar that runs.
type running struct {
	states chan registrar.State
	ended  chan error
	cancel context.CancelFunc
}

// start runs a registrar until the test ends, or end before.
func start(t *testing.T, c registrar.Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{states: make(chan registrar.State, 10_000), ended: make(chan error, 1), cancel: cancel}
	c.OnState = func(s registrar.State) { r.states <- s }
	go func() { r.ended <- registrar.Run(ctx, c); close(r.ended) }()
	t.Cleanup(func() {
		cancel()
		for range r.ended { // what it ended with is a matter of end
		}
	})
	return r
}

// end ends it and returns its error.
func (r *running) end() error {
	r.cancel()
	return <-r.ended
}

// want waits for a state of which is holds.
func (r *running) want(t *testing.T, what string, is func(registrar.State) bool) registrar.State {
	t.Helper()
	late := time.After(soon)
	var last registrar.State
	for {
		select {
		case last = <-r.states:
			if is(last) {
				return last
			}
		case err := <-r.ended:
			require.Failf(t, "the registrar ended", "while waiting for: %s; %v; last %+v", what, err, last)
		case <-late:
			require.Failf(t, "the state does not come", "%s; last %+v", what, last)
		}
	}
}

func registered(s registrar.State) bool { return s.Registered }

// problem waits for a problem that has a text in it.
func (r *running) problem(t *testing.T, text string) registrar.State {
	t.Helper()
	return r.want(t, "problem "+text, func(s registrar.State) bool { return strings.Contains(s.Problem, text) })
}

// place is where a registrar and a kubelet meet.
type place struct{ driver, registry string }

func newPlace(t *testing.T) place {
	t.Helper()
	dir := shortDir(t)
	p := place{driver: filepath.Join(dir, "csi.sock"), registry: filepath.Join(dir, "r")}
	require.NoError(t, os.Mkdir(p.registry, 0o750))
	return p
}

func (p place) config() registrar.Config {
	return registrar.Config{CSIAddress: p.driver, KubeletRegistrationPath: p.driver, PluginRegistrationPath: p.registry}
}

// socket is where the socket of a driver is.
func (p place) socket(driver string) string { return filepath.Join(p.registry, driver+"-reg.sock") }

// entries are the names in the registry.
func (p place) entries(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(p.registry)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
