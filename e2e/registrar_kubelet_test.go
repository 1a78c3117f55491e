package e2e_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/e2e/process"
)

const (
	// rack is the topology of the driver, attachLimit how many volumes it takes.
	rack        = "topology.e2e.csiemu.dev/rack"
	attachLimit = 7
	nodeIDs     = "csi.volume.kubernetes.io/nodeid"
	// inTime bounds a registration on a machine that is busy. Idle ones take up to
	// 1 s, as the kubelet looks every second.
	inTime = 10 * time.Second
)

// registration is a node with a driver and its registrar, which are started and
// ended by one part of a test after the other.
type registration struct {
	node    *cluster.Node
	program string
	// registry, csi and health are where the host sees the kubelet's directory, the
	// driver's socket and that of the registrar's HTTP endpoint.
	registry, csi, health string
	// running are the programs to be ended with the test.
	running           []*process.Process
	driver, registrar *process.Process
}

func newRegistration(t *testing.T, n *cluster.Node, program string) *registration {
	t.Helper()
	r := &registration{node: n, program: program}
	for _, at := range []struct {
		path *string
		in   string
	}{{&r.registry, "/plugins_registry"}, {&r.csi, "/plugins/" + driverName + "/csi.sock"}, {&r.health, "/h.sock"}} {
		var err error
		*at.path, err = n.OnHost(cluster.KubeletDir + at.in)
		require.NoError(t, err)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(r.csi), 0o755))
	t.Cleanup(func() { stopAll(t, r.running) })
	return r
}

// stopAll ends programs that a test has started.
func stopAll(t *testing.T, running []*process.Process) {
	t.Helper()
	var all error
	for _, p := range running {
		all = errors.Join(all, p.Stop())
	}
	require.NoError(t, all)
}

func (r *registration) enter(s *stage, name string, args ...string) *process.Process {
	s.Helper()
	p, err := r.node.Enter(name, append([]string{r.program}, args...)...)
	require.NoError(s, err)
	r.running = append(r.running, p)
	return p
}

// serve starts the driver, as a node of that id.
func (r *registration) serve(s *stage, id string) {
	s.Helper()
	r.driver = r.enter(s, "driver", "serve", "--endpoint=unix://"+socket, "--backend=memory",
		"--driver-name="+driverName, "--node="+id, "--attach-limit=7", "--topology="+rack+"=r1")
}

// register starts the registrar.
func (r *registration) register(s *stage) {
	s.Helper()
	r.registrar = r.enter(s, "registrar", "registrar", "--csi-address="+socket, "--kubelet-registration-path="+socket,
		"--plugin-registration-path="+cluster.KubeletDir+"/plugins_registry", "--http-endpoint=unix://"+cluster.KubeletDir+"/h.sock")
}

// csiNode waits until the CSINode has the driver, as a node of that id, or has no
// driver for the id "".
func (r *registration) csiNode(s *stage, id string) *storage.CSINode {
	s.Helper()
	return until(s, s.client.StorageV1().CSINodes().Watch, r.node.Name, func(c *storage.CSINode) bool {
		if id == "" {
			return len(c.Spec.Drivers) == 0
		}
		return len(c.Spec.Drivers) == 1 && c.Spec.Drivers[0].NodeID == id
	})
}

// right checks all that the kubelet has written of the driver.
func (r *registration) right(s *stage, id string) {
	s.Helper()
	count := int32(attachLimit)
	object := r.csiNode(s, id)
	require.Equal(s, []storage.CSINodeDriver{{
		Name: driverName, NodeID: id, TopologyKeys: []string{rack}, Allocatable: &storage.VolumeNodeResources{Count: &count},
	}}, object.Spec.Drivers)
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, r.node.Name, metav1.GetOptions{})
	require.NoError(s, err)
	require.Equal(s, n.UID, object.OwnerReferences[0].UID)
	require.JSONEq(s, `{"`+driverName+`":"`+id+`"}`, n.Annotations[nodeIDs])
	require.Equal(s, "r1", n.Labels[rack])
	require.Equal(s, []string{driverName + "-reg.sock"}, r.entries(s))
	info, err := os.Lstat(filepath.Join(r.registry, driverName+"-reg.sock"))
	require.NoError(s, err)
	require.Equal(s, fs.ModeSocket|0o600, info.Mode())
}

// entries are the names in the kubelet's directory.
func (r *registration) entries(s *stage) []string {
	s.Helper()
	all, err := os.ReadDir(r.registry)
	require.NoError(s, err)
	names := []string{}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestRegistrarOnAKubelet has a real kubelet know a driver through csiemu's
// registrar, over everything that can befall the three of them.
func TestRegistrarOnAKubelet(t *testing.T) {
	t.Parallel()
	program := buildCSIEmu(t)
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRegistration(t, c.Node(1), program)
	id := r.node.Name
	part := func(name string, f func(s *stage)) {
		if !t.Failed() { // they follow one another
			t.Run(name, func(t *testing.T) {
				f(&stage{T: t, ctx: ctx, client: c.Client, name: "registrar", driver: driverName})
			})
		}
	}
	part("within seconds of the driver's first answer", func(s *stage) { r.quick(s, id) })
	part("after the kubelet was started again", func(s *stage) {
		before := time.Now()
		require.NoError(s, r.node.RestartKubelet())
		now := s.ready(r.health, "asked again", func(now readiness) bool { return now.Detail.LastNotify.After(before) })
		require.True(s, now.Detail.Registered)
		r.right(s, id)
	})
	part("while the driver is away, and when it is back", func(s *stage) {
		require.NoError(s, r.driver.Kill())
		now := s.ready(r.health, "the driver is away", func(now readiness) bool { return !now.Detail.DriverReachable })
		require.False(s, now.OK)
		require.True(s, now.Detail.Registered, "so that volumes can be unmounted")
		r.right(s, id)
		r.serve(s, id)
		s.ready(r.health, "back", allWell)
		r.right(s, id)
	})
	part("when the driver comes back as another node", func(s *stage) {
		for _, id := range []string{"another", id} {
			require.NoError(s, r.driver.Stop())
			r.serve(s, id)
			r.csiNode(s, id)
			s.ready(r.health, "registered as "+id, func(now readiness) bool { return now.OK && now.Detail.NodeID == id })
			r.right(s, id)
		}
	})
	part("after the registrar was killed", func(s *stage) {
		require.NoError(s, r.registrar.Kill())
		r.right(s, id)
		r.register(s)
		s.ready(r.health, "registered", func(now readiness) bool { return now.OK && now.Detail.Offers == 1 })
		r.right(s, id)
	})
	part("after somebody removed the socket", func(s *stage) {
		require.NoError(s, os.Remove(filepath.Join(r.registry, driverName+"-reg.sock")))
		now := s.ready(r.health, "registered", func(now readiness) bool { return now.OK && now.Detail.Offers == 2 })
		require.Contains(s, now.Detail.LastError, "somebody removed the registration socket")
		r.right(s, id)
	})
	part("after the Node was deleted and made anew", func(s *stage) {
		nodes := s.client.CoreV1().Nodes()
		before, err := nodes.Get(s.ctx, id, metav1.GetOptions{})
		require.NoError(s, err)
		gone := untilGone[*storage.CSINode](s, s.client.StorageV1().CSINodes().Watch, id)
		require.NoError(s, nodes.Delete(s.ctx, id, metav1.DeleteOptions{}))
		gone()
		require.NoError(s, r.node.RestartKubelet()) // it makes the Node at its start only
		until(s, nodes.Watch, id, func(n *core.Node) bool { return n.UID != before.UID && n.Annotations[nodeIDs] != "" })
		r.right(s, id)
	})
	part("and nothing is left at the end", func(s *stage) {
		require.NoError(s, r.registrar.Stop())
		require.Empty(s, r.entries(s))
		r.csiNode(s, "")
		n := until(s, s.client.CoreV1().Nodes().Watch, id, func(n *core.Node) bool { return n.Annotations[nodeIDs] == "" })
		require.Contains(s, n.Labels, rack, "a kubelet lets labels stay")
		_, err := os.Lstat(r.health)
		require.ErrorIs(s, err, fs.ErrNotExist)
	})
}

// quick starts driver and registrar several times, each first for once, and leaves
// them running.
func (r *registration) quick(s *stage, id string) {
	const times = 6
	var took []time.Duration
	for i := range times {
		if i > 0 {
			require.NoError(s, r.registrar.Stop())
			require.NoError(s, r.driver.Stop())
			r.csiNode(s, "")
		}
		if i%2 == 0 {
			r.register(s)
			s.ready(r.health, "waits for the driver", func(now readiness) bool { return strings.Contains(now.Detail.Problem, "wait for the driver") })
			r.serve(s, id)
		} else {
			r.serve(s, id)
			r.register(s)
		}
		answered := s.answers(r.csi)
		r.csiNode(s, id)
		took = append(took, time.Since(answered).Round(time.Millisecond))
		s.ready(r.health, "registered", allWell)
		r.right(s, id)
	}
	s.Logf("from the driver's first answer to its entry in the CSINode: %v", took)
	require.Less(s, slices.Max(took), inTime)
}
