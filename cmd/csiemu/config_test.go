package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator"
)

// parsed reads a command line of serve as far as its configuration.
func parsed(t *testing.T, args ...string) emulator.Config {
	t.Helper()
	var f serveFlags
	cmd := &cobra.Command{}
	f.define(cmd.Flags())
	require.NoError(t, cmd.ParseFlags(append([]string{"--endpoint", "unix:///run/csi.sock", "--backend", "memory"}, args...)))
	config, err := f.config()
	require.NoError(t, err)
	return config
}

func TestNodesShareTheTopologyAndBringTheirSockets(t *testing.T) {
	t.Parallel()
	segments := map[string]string{"zone": "a", "rack": "7"}

	require.Equal(t, []emulator.Node{
		{Name: "one", Topology: segments},
		{Name: "two", Endpoint: "unix:///run/two/csi.sock", Topology: segments},
	}, parsed(t, "--node", "one", "--node", "two=unix:///run/two/csi.sock", "--topology", "zone=a,rack=7").Nodes)

	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, []emulator.Node{{Name: host, Topology: segments}}, parsed(t, "--topology", "zone=a", "--topology", "rack=7").Nodes)
	require.Empty(t, parsed(t).Nodes)
	require.Equal(t, map[string]string{"zone": "a", "rack": "7"}, parsed(t, "--node", " one", "--topology", "zone=a, rack=7 ").Nodes[0].Topology)
}

func TestProfileFollowsTheFlags(t *testing.T) {
	t.Parallel()
	p := parsed(t, "--driver-name", "mine.example.com", "--attach-limit", "3", "--disable", "expand_volume", "--disable", "CLONE_VOLUME").Profile
	require.Equal(t, "mine.example.com", p.DriverName)
	require.EqualValues(t, 3, p.MaxVolumesPerNode)
	for _, c := range p.Controller {
		require.NotContains(t, []string{"EXPAND_VOLUME", "CLONE_VOLUME"}, c.String())
	}
	for _, c := range p.Node {
		require.NotEqual(t, "EXPAND_VOLUME", c.String())
	}
	for _, c := range parsed(t, "--no-attach").Profile.Controller {
		require.NotEqual(t, "PUBLISH_UNPUBLISH_VOLUME", c.String())
	}
}

func TestHalvesFindEachOther(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("thirty-two bytes that nobody knows"), 0o600))

	node := parsed(t, "--services", "node", "--array", "unix:///run/array.sock", "--secret-file", secret)
	require.Equal(t, emulator.NodeService, node.Services)
	require.False(t, node.CheckCaller, "its array does")
	require.Equal(t, "unix:///run/array.sock", node.Link.Array)
	require.NotNil(t, node.Link.TLS)

	array := parsed(t, "--services", "controller", "--array-listen", "tcp://127.0.0.1:7443", "--secret-file", secret)
	require.Equal(t, emulator.ControllerService, array.Services)
	require.True(t, array.CheckCaller)
	require.Equal(t, "tcp://127.0.0.1:7443", array.Link.Listen)
	require.NotNil(t, array.Link.TLS)

	require.Zero(t, parsed(t).Link)
}

func TestStrictIsStrictInBothWays(t *testing.T) {
	t.Parallel()
	strict := parsed(t, "--strict", "--sync")
	require.True(t, strict.Strict)
	require.True(t, strict.StrictLocks)
	require.True(t, strict.Sync)
	require.False(t, parsed(t).Strict)
}
