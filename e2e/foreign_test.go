package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"

	"github.com/csiemu/csiemu/e2e/cluster"
)

// TestRolesWithAForeignDriver has csiemu's registrar and attacher serve a driver
// that nobody here wrote: the one of Kubernetes' own storage tests. Its volumes are
// directories.
func TestRolesWithAForeignDriver(t *testing.T) {
	t.Parallel()
	program, c := buildCSIEmu(t), newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	d := &declared{
		stage:   &stage{T: t, ctx: ctx, client: c.Client, name: "foreign", driver: "foreign.example.com"},
		cluster: c, node: c.Node(1), program: program, socket: cluster.KubeletDir + "/plugins/foreign/csi.sock",
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(d.onHost()), 0o755))
	enter(t, d.node, "csi-mock", "csi-mock", d.socket, d.driver)
	enter(t, d.node, "attacher", program, "attacher", "--csi-address="+d.socket, "--kubeconfig="+c.Kubeconfig, "--log-level=debug")
	d.register()
	d.volumeFor(core.ReadWriteOnce)
	d.pod(d.name)
	require.Equal(t, d.driver, d.attachment().Spec.Attacher)
	_, err := c.Exec(ctx, namespace, d.name, "/podprog", "fill", dataFile, "1000", "6")
	require.NoError(t, err)
	_, err = c.Exec(ctx, namespace, d.name, "/podprog", "verify", dataFile, "1000", "6")
	require.NoError(t, err)
	d.unpodDetached(d.name)
}
