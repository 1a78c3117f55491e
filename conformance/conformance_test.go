package conformance_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/conformance"
	"github.com/csiemu/csiemu/emulator"
)

const mib = 1 << 20

// newMemory is a backend that every system has.
func newMemory(*testing.T, string) backends.Backend { return memory.New(memory.Options{}) }

// served is an emulator behind a socket.
type served struct {
	dir    string
	config emulator.Config
	conn   *grpc.ClientConn
}

// serve serves an emulator over a backend until the test ends, and then looks
// whether the rows have left anything in it.
func serve(t *testing.T, backend string, open func(*testing.T, string) backends.Backend, edit func(*emulator.Config), options ...grpc.DialOption) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	state := filepath.Join(dir, "state")
	require.NoError(t, os.Mkdir(state, 0o700))
	profile := emulator.DefaultProfile(backend)
	profile.MaxVolumesPerNode = 6
	s := &served{dir: dir, config: emulator.Config{
		Backend: open(t, state), Profile: profile, StateDir: state, Strict: true, StrictLocks: true,
		Pools: map[string]int64{emulator.DefaultPool: emulator.DefaultPoolBytes, "other": emulator.DefaultPoolBytes},
		Nodes: []emulator.Node{{Name: "node-a"}, {Name: "node-b", Endpoint: "unix://" + filepath.Join(dir, "b.sock")}},
	}}
	if edit != nil {
		edit(&s.config)
	}
	endpoint := "unix://" + filepath.Join(dir, "a.sock")
	listeners, err := emulator.Listen(t.Context(), s.config.Endpoints(endpoint)...)
	require.NoError(t, err)
	e, err := emulator.New(t.Context(), s.config)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- e.ServeOn(ctx, listeners) }()
	s.conn, err = grpc.NewClient(endpoint, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.conn.Close())
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, e.Close())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			require.Equal(t, "state", entry.Name(), "the rows left something")
		}
	})
	return s
}

// target tells the rows of an emulator what serve has given it.
func (s *served) target() *conformance.Target {
	target := &conformance.Target{
		Controller: s.conn, Dir: s.dir, VolumeBytes: 32 * mib, SecondNodeID: "node-b",
		OtherParameters:    map[string]string{"pool": "other"},
		ModifiedParameters: map[string]string{"health": "DEGRADED:SlowDisk"},
		RefusedParameters:  map[string]string{"colour": "blue"},
	}
	if key := s.config.Profile.NodeTopologyKey; key != "" {
		target.OtherTopology = map[string]string{key: "node-b"}
	}
	return target
}

// run runs all rows, or those of some RPCs, one after another as they have to.
func run(t *testing.T, s *served, target *conformance.Target, rpcs ...string) {
	t.Helper()
	all := conformance.All()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(rpcs) > 0 && !slices.Contains(rpcs, all[name].RPC) {
			continue
		}
		t.Run(name, func(t *testing.T) { all[name].Run(t, target) })
	}
	s.holdsNothing(t)
}

// holdsNothing fails the test if the array has volumes or snapshots.
func (s *served) holdsNothing(t *testing.T) {
	t.Helper()
	controller := csi.NewControllerClient(s.conn)
	if slices.Contains(s.config.Profile.Controller, csi.ControllerServiceCapability_RPC_LIST_VOLUMES) {
		volumes, err := controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		require.NoError(t, err)
		require.Empty(t, volumes.GetEntries())
	}
	if slices.Contains(s.config.Profile.Controller, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS) {
		snapshots, err := controller.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
		require.NoError(t, err)
		require.Empty(t, snapshots.GetEntries())
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	s := serve(t, "memory", newMemory, nil)
	target := s.target()
	target.NoData = true
	run(t, s, target)
}

// TestMemoryInZones has nodes in two zones, and snapshots that belong to them.
func TestMemoryInZones(t *testing.T) {
	t.Parallel()
	s := serve(t, "memory", newMemory, func(c *emulator.Config) {
		c.Profile.EnableTopology()
		c.Nodes[0].Topology = map[string]string{"example.com/zone": "a"}
		c.Nodes[1].Topology = map[string]string{"example.com/zone": "a"}
		c.Nodes = append(c.Nodes, emulator.Node{
			Name: "node-c", Topology: map[string]string{"example.com/zone": "c"},
			Endpoint: "unix://" + filepath.Join(filepath.Dir(c.StateDir), "c.sock"),
		})
	})
	target := s.target()
	target.NoData = true
	target.OtherTopology = map[string]string{"example.com/zone": "c"}
	run(t, s, target)
}

// TestMemoryOffline is a driver that expands volumes only while they are not
// used, and whose volumes are block volumes.
func TestMemoryOffline(t *testing.T) {
	t.Parallel()
	s := serve(t, "memory", newMemory, func(c *emulator.Config) {
		c.Profile.Expansion = []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_OFFLINE}
	})
	target := s.target()
	target.NoData, target.Block = true, true
	run(t, s, target)
}

// TestMemoryWithLittle is a driver that has hardly any capability: what it lacks
// is not implemented.
func TestMemoryWithLittle(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string][]string{
		"nothing":           {"CONTROLLER_SERVICE"},
		"volumes":           {"CONTROLLER_SERVICE", "CREATE_DELETE_VOLUME"},
		"volumes and lists": {"CONTROLLER_SERVICE", "CREATE_DELETE_VOLUME", "LIST_VOLUMES", "GET_CAPACITY", "EXPAND_VOLUME", "ONLINE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "memory", newMemory, func(c *emulator.Config) {
				for _, names := range []map[string]int32{
					csi.PluginCapability_Service_Type_value, csi.PluginCapability_VolumeExpansion_Type_value,
					csi.ControllerServiceCapability_RPC_Type_value, csi.NodeServiceCapability_RPC_Type_value,
					csi.GroupControllerServiceCapability_RPC_Type_value,
				} {
					for capability := range names {
						if !slices.Contains(kept, capability) {
							c.Profile.Disable(capability)
						}
					}
				}
			})
			target := s.target()
			target.NoData = true
			run(t, s, target)
		})
	}
}
