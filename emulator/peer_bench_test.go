//go:build linux

package emulator_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/ceiling"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// BenchmarkPeer has another driver walk the same lives in turns with the
// emulator, whose store is on tmpfs. BENCH_PEER is the endpoint of the driver,
// which the benchmark does not start.
func BenchmarkPeer(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	endpoint := os.Getenv("BENCH_PEER")
	if endpoint == "" {
		b.Skip("BENCH_PEER names no driver to compare with")
	}
	for _, kind := range []struct {
		name string
		kind ceiling.Kind
	}{{"ext4", ceiling.Ext4}, {"block", ceiling.Block}} {
		for _, callers := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("volume=%s/callers=%d", kind.name, callers), func(b *testing.B) {
				ours := newLives(b, kind.kind, testenv.TmpfsDir(b), false)
				peer := &lives{clients: newClients(dialBench(b, endpoint)), targets: testenv.TmpfsDir(b), capability: ours.capability}
				node, err := peer.NodeGetInfo(b.Context(), &csi.NodeGetInfoRequest{})
				require.NoError(b, err)
				peer.node, peer.attaches = node.GetNodeId(), attaches(b, peer)
				compare(b, callers, ours.live, peer.live)
			})
		}
	}
}

func attaches(b *testing.B, controller csi.ControllerClient) bool {
	b.Helper()
	can, err := controller.ControllerGetCapabilities(b.Context(), &csi.ControllerGetCapabilitiesRequest{})
	require.NoError(b, err)
	for _, c := range can.GetCapabilities() {
		if c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			return true
		}
	}
	return false
}
