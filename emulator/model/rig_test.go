package model_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

// nodes are the nodes of the emulator.
var nodes = []string{"node-1", "node-2"}

// rig is an emulator and a connection to each of its nodes, the first of which
// is the array's too.
type rig struct {
	emulator *emulator.Emulator
	servers  []*grpc.Server
	conns    map[string]*grpc.ClientConn
	// dir is where volumes are staged and published.
	dir string
	// devices says that a staging path has to be made by the caller.
	devices bool
}

func newRig(t *testing.T, c emulator.Config) *rig {
	t.Helper()
	for _, n := range nodes {
		c.Nodes = append(c.Nodes, emulator.Node{Name: n})
	}
	c.Pools = map[string]int64{emulator.DefaultPool: 1 << 50}
	r := &rig{dir: realDir(t)}
	var err error
	r.emulator, err = emulator.New(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.stop()
		require.NoError(t, r.emulator.Close())
	})
	r.serve(t)
	return r
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

// serve makes servers and connections.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	r.conns = map[string]*grpc.ClientConn{}
	for _, n := range nodes {
		server, listener := grpc.NewServer(), bufconn.Listen(1<<16)
		require.NoError(t, r.emulator.Register(n, server))
		go func() { _ = server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:"+n, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		require.NoError(t, err)
		r.servers, r.conns[n] = append(r.servers, server), conn
	}
}

// stop ends the servers and waits for the calls that are under way, also those
// whose callers gave up.
func (r *rig) stop() {
	for _, s := range r.servers {
		s.GracefulStop()
	}
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.servers = nil
}

func (r *rig) array() csi.ControllerClient { return csi.NewControllerClient(r.conns[nodes[0]]) }

func (r *rig) node(name string) csi.NodeClient { return csi.NewNodeClient(r.conns[name]) }

// paths are where a volume may be on a node.
func (r *rig) paths(node, id, kind string) []string {
	return []string{filepath.Join(r.dir, node+"-"+id+"-"+kind+"-a"), filepath.Join(r.dir, node+"-"+id+"-"+kind+"-b")}
}

// requireNothingLeft asserts that no path of a volume is left, but those that
// the caller has to make.
func (r *rig) requireNothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(r.dir)
	require.NoError(t, err)
	for _, e := range left {
		if r.devices && e.IsDir() {
			require.NoError(t, os.Remove(filepath.Join(r.dir, e.Name())), "something is mounted there, or in it")
			continue
		}
		require.Fail(t, "a path is left", e.Name())
	}
}

// setup is a kind of emulator.
type setup struct {
	name string
	// clients call at once, each so often.
	clients, calls int
	devices        bool
	strict         bool
	modes          []csi.VolumeCapability_AccessMode_Mode
	// open makes a backend, and the state directory if it needs one.
	open func(t *testing.T) (backends.Backend, string)
}
