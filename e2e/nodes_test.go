package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// patience is how long a cluster may take to start, and the life of a pod in it, on
// a machine that has much else to do.
const patience = 5 * time.Minute

// newCluster starts a cluster that ends with the test.
func newCluster(t *testing.T, opts ...cluster.Option) *cluster.Cluster {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop)
	dir, err := os.MkdirTemp("", "c-") //nolint:usetesting // that of t.TempDir is too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	c, err := cluster.New(ctx, dir, opts...)
	require.NoError(t, err)
	t.Logf("%d nodes were ready after %s", len(c.Nodes()), time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		require.NoError(t, c.Close())
	})
	return c
}

// enter starts a program in a node that ends with the test.
func enter(t *testing.T, n *cluster.Node, name string, command ...string) *process.Process {
	t.Helper()
	p, err := n.Enter(name, command...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

const (
	driverName = "loop.csiemu.dev"
	// socket is that of the driver, in the node.
	socket = cluster.KubeletDir + "/plugins/" + driverName + "/csi.sock"
)

// serve starts csiemu, whose path is program, in a node, with its registrar, and waits until the kubelet
// knows it.
func serve(t *testing.T, s *stage, n *cluster.Node, program string) {
	t.Helper()
	at, err := n.OnHost(socket)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	enter(t, n, "driver", program, "serve", "--endpoint=unix://"+socket, "--state-dir="+filepath.Join(n.Dir, "array"), "--node="+n.Name)
	enter(t, n, "registrar", program, "registrar", "--csi-address="+socket, "--kubelet-registration-path="+socket,
		"--plugin-registration-path="+cluster.KubeletDir+"/plugins_registry")
	until(s, s.client.StorageV1().CSINodes().Watch, n.Name, func(c *storage.CSINode) bool { return len(c.Spec.Drivers) == 1 })
}

// create makes a volume of 1 GiB by a call to the driver in a node.
func create(t *testing.T, s *stage, n *cluster.Node) *csi.Volume {
	t.Helper()
	at, err := n.OnHost(socket)
	require.NoError(t, err)
	conn, err := grpc.NewClient("unix://"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	reply, err := csi.NewControllerClient(conn).CreateVolume(s.ctx, &csi.CreateVolumeRequest{
		Name: s.name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	require.NoError(t, err)
	return reply.GetVolume()
}

// pod makes a pod that waits, with the claim of the stage at /data, and waits until
// it runs.
func (s *stage) pod(name string, edits ...func(*core.Pod)) {
	s.Helper()
	s.makePod(name, edits...)
	s.running(name)
}

// running waits until a pod runs.
func (s *stage) running(name string) {
	s.Helper()
	until(s, s.client.CoreV1().Pods(namespace).Watch, name, func(p *core.Pod) bool { return p.Status.Phase == core.PodRunning })
}

// makePod is pod without the wait.
func (s *stage) makePod(name string, edits ...func(*core.Pod)) {
	s.Helper()
	now := int64(1)
	p := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: core.PodSpec{
			TerminationGracePeriodSeconds: &now,
			Containers: []core.Container{{
				Name: "podprog", Image: cluster.Image, ImagePullPolicy: core.PullNever, Args: []string{"pause"},
				VolumeMounts: []core.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
				PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: s.name},
			}}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	_, err := s.client.CoreV1().Pods(namespace).Create(s.ctx, p, metav1.CreateOptions{})
	require.NoError(s, err)
}

// unpod deletes a pod and waits until it is gone.
func (s *stage) unpod(name string) {
	s.Helper()
	pods := s.client.CoreV1().Pods(namespace)
	gone := untilGone[*core.Pod](s, pods.Watch, name)
	require.NoError(s, pods.Delete(s.ctx, name, metav1.DeleteOptions{}))
	gone()
}

// TestPodWithVolume has a real kubelet attach, mount and unmount a volume of
// csiemu: what one pod writes the next one reads, also after the kubelet and the
// API server were started anew.
func TestPodWithVolume(t *testing.T) {
	t.Parallel()
	program := buildCSIEmu(t)
	c := newCluster(t)
	n := c.Node(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := &stage{T: t, ctx: ctx, client: c.Client, name: "data", driver: driverName}
	serve(t, s, n, program)
	enter(t, n, "csi-attacher", "csi-attacher", "--csi-address="+socket, "--kubeconfig="+c.Kubeconfig, "--v=4")

	s.persistent(create(t, s, n))
	s.claim(s.name, 1, s.name)
	s.pod("writer")
	const size, seed = "10000000", "7"
	_, err := c.Exec(ctx, namespace, "writer", "/podprog", "fill", "/data/file", size, seed)
	require.NoError(t, err)
	attached, err := c.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, attached.Items, 1)
	gone := untilGone[*storage.VolumeAttachment](s, c.Client.StorageV1().VolumeAttachments().Watch, attached.Items[0].Name)
	s.unpod("writer")
	gone()

	require.NoError(t, n.RestartKubelet())
	require.NoError(t, c.StopAPIServer())
	require.NoError(t, c.StartAPIServer(ctx))
	s.pod("reader")
	_, err = c.Exec(ctx, namespace, "reader", "/podprog", "verify", "/data/file", size, seed)
	require.NoError(t, err)
	_, err = c.Exec(ctx, namespace, "reader", "/podprog", "verify", "/data/file", size, "8")
	require.ErrorContains(t, err, "it differs from seed 8")
	s.unpod("reader")
}
