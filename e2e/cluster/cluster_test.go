package cluster_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// limit is how long all that a test does may take on a busy machine.
const limit = 5 * time.Minute

// start starts a cluster that ends with the test.
func start(ctx context.Context, t *testing.T, opts ...cluster.Option) *cluster.Cluster {
	t.Helper()
	began := time.Now()
	c, err := cluster.New(ctx, t.TempDir(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Logf("%d nodes were ready after %s", len(c.Nodes()), time.Since(began).Round(time.Millisecond))
	return c
}

// TestKilled has the process of a cluster killed while another cluster runs beside
// it. The next cluster, of two nodes, finds nothing of the dead one; what it starts
// is gone when it is closed; and one of its nodes is lost and comes back.
func TestKilled(t *testing.T) {
	testenv.Need(t, kernel.Root)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dead := t.TempDir()
	kill := startVictim(ctx, t, dead)
	beside := start(ctx, t)
	kill()
	require.DirExists(t, filepath.Join(dead, "cluster"), "files that the killed process could not remove")

	c := start(ctx, t, cluster.Nodes(2))
	require.NoDirExists(t, filepath.Join(dead, "cluster"))
	require.NoError(t, beside.Node(1).Ready(ctx), "the cluster that was there all the time")

	lost := c.Node(2)
	out, err := lost.Output(ctx, "hostname")
	require.NoError(t, err)
	require.Equal(t, "node2\n", out)
	require.NoError(t, lost.Kill())
	_, err = lost.Output(ctx, "hostname")
	require.ErrorContains(t, err, "the node is down")
	require.NoError(t, lost.NotReady(ctx))
	require.NoError(t, lost.Start(ctx))
	require.NoError(t, lost.Ready(ctx))

	require.NoError(t, lost.Disconnect(ctx))
	require.NoError(t, lost.NotReady(ctx))
	require.NoError(t, lost.Connect(ctx))
	require.NoError(t, lost.Ready(ctx))
}

// startVictim starts a process with a cluster, to be killed.
func startVictim(ctx context.Context, t *testing.T, dir string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), victim+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		require.Error(t, cmd.Wait())
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root)
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(real, link))
	for name, c := range map[string]struct {
		dir, says string
		nodes     int
	}{
		"no node":                      {real, "make 0 nodes", 0},
		"more nodes than addresses":    {real, "make 10 nodes", 10},
		"a link":                       {link, "without symbolic links", 1},
		"what nodes have of their own": {"/run", "nodes have a /run of their own", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := cluster.New(t.Context(), c.dir, cluster.Nodes(c.nodes))
			require.ErrorContains(t, err, c.says)
		})
	}
}
