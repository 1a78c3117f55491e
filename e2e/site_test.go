package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	storage "k8s.io/api/storage/v1"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/journal"
)

// site is a cluster with one array: the controller and its attacher run on the
// host, and each node has its half of the driver, with a registrar.
type site struct {
	*stage
	cluster    *cluster.Cluster
	controller csi.ControllerClient
	// dir is that of the array, on the host; the nodes see it too.
	dir     string
	program string
}

// newSite starts a site with so many nodes, which ends with the test.
func newSite(t *testing.T, nodes int) *site {
	t.Helper()
	program, c := buildCSIEmu(t), newCluster(t, cluster.Nodes(nodes))
	dir := filepath.Join(c.Node(1).Dir, "site") // which the cluster removes, also after a test that was killed
	require.NoError(t, os.Mkdir(dir, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	s := &site{
		stage: &stage{T: t, ctx: ctx, client: c.Client, name: "site", driver: driverName}, cluster: c, dir: dir, program: program,
	}
	require.NoError(t, os.WriteFile(s.file("secret"), []byte("for array and nodes"), 0o600))
	s.host("array", "serve", "--services=controller", "--endpoint=unix://"+s.file("csi.sock"), "--state-dir="+s.file("array"),
		"--array-listen=unix://"+s.file("link.sock"), "--secret-file="+s.file("secret"), "--journal="+s.file("journal"))
	s.host("attacher", "attacher", "--csi-address="+s.file("csi.sock"), "--kubeconfig="+c.Kubeconfig, "--log-level=debug")
	for _, n := range c.Nodes() {
		s.join(n)
	}
	conn, err := grpc.NewClient("unix://"+s.file("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	s.controller = csi.NewControllerClient(conn)
	return s
}

func (s *site) file(name string) string { return filepath.Join(s.dir, name) }

// host starts csiemu on the host.
func (s *site) host(name string, args ...string) {
	s.Helper()
	p, err := process.Start(process.Command{Name: name, Dir: s.dir, Path: s.program, Args: args})
	require.NoError(s, err)
	s.Cleanup(func() {
		require.NoError(s, p.Stop())
		if s.Failed() {
			s.Logf("the end of the log of %s: %s", name, p.Tail())
		}
	})
}

// join starts the driver's half of a node, and waits until the kubelet knows it.
func (s *site) join(n *cluster.Node) {
	s.Helper()
	at, err := n.OnHost(socket)
	require.NoError(s, err)
	require.NoError(s, os.MkdirAll(filepath.Dir(at), 0o755))
	enter(s.T, n, "driver", s.program, "serve", "--services=node", "--endpoint=unix://"+socket, "--state-dir="+filepath.Join(n.Dir, "driver"),
		"--node="+n.Name, "--array=unix://"+s.file("link.sock"), "--secret-file="+s.file("secret"))
	enter(s.T, n, "registrar", s.program, "registrar", "--csi-address="+socket, "--kubelet-registration-path="+socket,
		"--plugin-registration-path="+cluster.KubeletDir+"/plugins_registry")
	until(s.stage, s.client.StorageV1().CSINodes().Watch, n.Name, func(c *storage.CSINode) bool { return len(c.Spec.Drivers) == 1 })
}

// part is a stage for a part of the test, with objects and a time limit of its own.
func (s *site) part(t *testing.T, name string) *stage {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	t.Cleanup(cancel)
	part := *s.stage
	part.T, part.ctx, part.name = t, ctx, name
	return &part
}

// create makes a volume of 1 GiB with a name.
func (s *site) create(name string, edits ...func(*csi.CreateVolumeRequest)) *csi.Volume {
	s.Helper()
	r := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
	for _, edit := range edits {
		edit(r)
	}
	reply, err := s.controller.CreateVolume(s.ctx, r)
	require.NoError(s, err)
	return reply.GetVolume()
}

// calls are the calls about a volume that have succeeded so far, in order: those of
// the array and of the nodes, which tell it of theirs.
func (s *site) calls(volume string) []*journal.Entry {
	s.Helper()
	return succeeded(s.stage, s.file("journal"), volume)
}

// succeeded are the calls about a volume in the journal file of a driver.
func succeeded(s *stage, path, volume string) (found []*journal.Entry) {
	s.Helper()
	data, err := os.ReadFile(path)
	require.NoError(s, err)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e journal.Entry
		require.NoError(s, json.Unmarshal(lines.Bytes(), &e))
		if e.Volume == volume && e.Done && e.Code == codes.OK {
			found = append(found, &e)
		}
	}
	require.NoError(s, lines.Err())
	return found
}

// request is that of the first of some calls which has a method.
func request[R any](s *stage, calls []*journal.Entry, method string) R {
	s.Helper()
	i := slices.IndexFunc(calls, func(e *journal.Entry) bool { return e.Method == method })
	require.GreaterOrEqual(s, i, 0, "%s is not among %v", method, calls)
	return calls[i].Request.(R)
}
