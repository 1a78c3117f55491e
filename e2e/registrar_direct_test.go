package e2e_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/e2e/control"
	"github.com/csiemu/csiemu/e2e/process"
)

// account is the service account of testdata/rbac/registrar.yaml.
const account = "csiemu-registrar"

// direct is a registrar beside an API server to which nobody else writes of nodes.
type direct struct {
	dir, program string
	// kubeconfig has the rights of the account, and no others.
	kubeconfig string
	// csi and health are the sockets of the driver and of the registrar's HTTP
	// endpoint.
	csi, health       string
	running           []*process.Process
	driver, registrar *process.Process
}

// newDirect gives the account its rights: those of the first role of the file, to be
// bound as it is.
func newDirect(t *testing.T, plane *control.Plane, dir, program string) *direct {
	t.Helper()
	d := &direct{
		dir: dir, program: program, kubeconfig: kubeconfigOf(t, plane, "", "system:serviceaccount:"+rightsNamespace+":"+account),
		csi: filepath.Join(dir, "csi.sock"), health: filepath.Join(dir, "h.sock"),
	}
	grant(t, plane.Client, "../testdata/rbac/registrar.yaml")
	t.Cleanup(func() { stopAll(t, d.running) })
	return d
}

// bind gives the account the rights of one more role.
func (s *stage) bind(role string) {
	s.Helper()
	_, err := s.client.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Subjects:   []rbac.Subject{{Kind: rbac.ServiceAccountKind, Name: account, Namespace: rightsNamespace}},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

func (d *direct) start(s *stage, name string, args ...string) *process.Process {
	s.Helper()
	p, err := process.Start(process.Command{Name: name, Dir: d.dir, Path: d.program, Args: args})
	require.NoError(s, err)
	d.running = append(d.running, p)
	return p
}

// serve starts the driver, as a node of that id.
func (d *direct) serve(s *stage, id, limit string) {
	s.Helper()
	d.driver = d.start(s, "driver", "serve", "--endpoint=unix://"+d.csi, "--backend=memory",
		"--driver-name="+driverName, "--node="+id, "--attach-limit="+limit, "--topology="+rack+"=r1")
}

// register starts the registrar.
func (d *direct) register(s *stage, args ...string) {
	s.Helper()
	d.registrar = d.start(s, "registrar", append([]string{
		"registrar", "--csi-address=" + d.csi, "--direct", "--node-name=" + s.name,
		"--kubeconfig=" + d.kubeconfig, "--http-endpoint=unix://" + d.health,
	}, args...)...)
}

// makeNode makes the Node, as whoever plays the kubelet would.
func (s *stage) makeNode() *core.Node {
	s.Helper()
	n, err := s.client.CoreV1().Nodes().Create(s.ctx, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
	require.NoError(s, err)
	return n
}

// written waits until the registrar says that all is written, and checks it.
func (d *direct) written(s *stage, id string, limit int32) *core.Node {
	s.Helper()
	object := until(s, s.client.StorageV1().CSINodes().Watch, s.name, func(c *storage.CSINode) bool {
		return len(c.Spec.Drivers) == 1 && c.Spec.Drivers[0].NodeID == id && *c.Spec.Drivers[0].Allocatable.Count == limit
	})
	require.Equal(s, []string{rack}, object.Spec.Drivers[0].TopologyKeys)
	require.Contains(s, object.Annotations[core.MigratedPluginsAnnotationKey], "kubernetes.io/aws-ebs")
	s.ready(d.health, "all is written", func(r readiness) bool { return r.OK && r.Detail.NodeID == id })
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, s.name, metav1.GetOptions{})
	require.NoError(s, err)
	require.Equal(s, n.UID, object.OwnerReferences[0].UID)
	require.JSONEq(s, `{"`+driverName+`":"`+id+`"}`, n.Annotations[nodeIDs])
	require.Equal(s, "r1", n.Labels[rack])
	return n
}

// takenBack checks that nothing is left of the driver.
func (d *direct) takenBack(s *stage) {
	s.Helper()
	object, err := s.client.StorageV1().CSINodes().Get(s.ctx, s.name, metav1.GetOptions{})
	require.NoError(s, err)
	require.Empty(s, object.Spec.Drivers)
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, s.name, metav1.GetOptions{})
	require.NoError(s, err)
	require.Empty(s, n.Annotations)
	require.NotContains(s, n.Labels, rack)
	require.NotContains(s, n.Status.Capacity, legacyLimit)
	require.NotContains(s, n.Status.Allocatable, legacyLimit)
}

const legacyLimit core.ResourceName = "attachable-volumes-csi-" + driverName

// TestRegistrarWithoutAKubelet has csiemu's registrar write itself to a real API
// server what a kubelet would have, with the rights of testdata/rbac/registrar.yaml.
func TestRegistrarWithoutAKubelet(t *testing.T) {
	t.Parallel()
	program := buildCSIEmu(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	plane, dir := newPlane(ctx, t)
	on := func(t *testing.T) *stage {
		return &stage{T: t, ctx: ctx, client: plane.Client, name: "bare", driver: driverName}
	}
	d := newDirect(t, plane, dir, program)
	part := func(name string, f func(s *stage)) {
		if !t.Failed() { // they follow one another
			t.Run(name, func(t *testing.T) { f(on(t)) })
		}
	}
	part("with the first role alone", d.base)
	part("what it has no right to it says", d.forbidden)
	part("with all roles", d.all)
}

func (d *direct) base(s *stage) {
	d.register(s)
	d.serve(s, "n-1", "7")
	now := s.ready(d.health, "waits for the Node", func(r readiness) bool { return r.Detail.NodeID != "" && r.Detail.Problem != "" })
	require.Contains(s, now.Detail.Problem, "there is no Node bare, waiting for it")
	first := s.makeNode()
	require.Equal(s, first.UID, d.written(s, "n-1", 7).UID)

	// Nobody collects garbage here: the CSINode of the Node before is still there.
	require.NoError(s, s.client.CoreV1().Nodes().Delete(s.ctx, s.name, metav1.DeleteOptions{}))
	s.ready(d.health, "the Node is gone", func(r readiness) bool { return !r.Detail.Registered })
	second := s.makeNode()
	until(s, s.client.StorageV1().CSINodes().Watch, s.name, func(c *storage.CSINode) bool { return c.OwnerReferences[0].UID == second.UID })
	d.written(s, "n-1", 7)

	// An entry is not to be changed, but for its limit.
	for _, as := range []struct {
		id, text string
		limit    int32
	}{{"n-1", "9", 9}, {"n-2", "9", 9}, {"n-1", "7", 7}} {
		require.NoError(s, d.driver.Stop())
		d.serve(s, as.id, as.text)
		d.written(s, as.id, as.limit)
	}
	object, err := s.client.StorageV1().CSINodes().Get(s.ctx, s.name, metav1.GetOptions{})
	require.NoError(s, err)
	object.Spec.Drivers = nil
	_, err = s.client.StorageV1().CSINodes().Update(s.ctx, object, metav1.UpdateOptions{})
	require.NoError(s, err)
	d.written(s, "n-1", 7)
	require.NoError(s, d.registrar.Stop())
	d.takenBack(s)
}

func (d *direct) forbidden(s *stage) {
	d.register(s, "--csidriver-object")
	now := s.ready(d.health, "no right to the object", func(r readiness) bool { return r.Detail.Registered && r.Detail.CSIDriverObject == "failed" })
	require.False(s, now.OK)
	require.Contains(s, now.Detail.Problem, "forbidden")
	require.NoError(s, d.registrar.Stop())

	d.register(s, "--legacy-limits")
	now = s.ready(d.health, "no right to the status", func(r readiness) bool { return r.Detail.NodeID != "" && r.Detail.Problem != "" })
	require.Contains(s, now.Detail.Problem, "write the volume limit of Node bare")
	require.Contains(s, now.Detail.Problem, "forbidden")
	require.False(s, now.Detail.Registered)
	require.NoError(s, d.registrar.Stop())
	d.takenBack(s)
}

func (d *direct) all(s *stage) {
	s.bind(account + "-legacy-limits")
	s.bind(account + "-csidriver")
	d.register(s, "--legacy-limits", "--csidriver-object", "--csidriver-update-period=10s", "--csidriver-lifecycle-modes=Persistent,Ephemeral", "--csidriver-delete")
	n := d.written(s, "n-1", 7)
	for _, list := range []core.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		count := list[legacyLimit]
		require.Equal(s, int64(7), count.Value())
	}
	drivers := s.client.StorageV1().CSIDrivers()
	made, err := drivers.Get(s.ctx, driverName, metav1.GetOptions{})
	require.NoError(s, err)
	require.Equal(s, "registrar", made.Labels["csiemu.dev/managed-by"])
	require.True(s, *made.Spec.AttachRequired)
	require.True(s, *made.Spec.PodInfoOnMount, "with Ephemeral")
	require.True(s, *made.Spec.StorageCapacity)
	require.Equal(s, storage.FileFSGroupPolicy, *made.Spec.FSGroupPolicy)
	require.Equal(s, int64(10), *made.Spec.NodeAllocatableUpdatePeriodSeconds)

	// It stays as it is: the defaults of the server are no change.
	require.NoError(s, d.driver.Stop())
	d.serve(s, "n-1", "5")
	d.written(s, "n-1", 5)
	still, err := drivers.Get(s.ctx, driverName, metav1.GetOptions{})
	require.NoError(s, err)
	require.Equal(s, made.ResourceVersion, still.ResourceVersion)

	no := false
	still.Spec.StorageCapacity = &no
	_, err = drivers.Update(s.ctx, still, metav1.UpdateOptions{})
	require.NoError(s, err)
	until(s, drivers.Watch, driverName, func(o *storage.CSIDriver) bool { return *o.Spec.StorageCapacity })
	require.NoError(s, drivers.Delete(s.ctx, driverName, metav1.DeleteOptions{}))
	until(s, drivers.Watch, driverName, func(o *storage.CSIDriver) bool { return o.UID != made.UID })
	s.ready(d.health, "all is well", allWell)

	require.NoError(s, d.registrar.Stop())
	d.takenBack(s)
	_, err = drivers.Get(s.ctx, driverName, metav1.GetOptions{})
	require.True(s, apierrors.IsNotFound(err), "%v", err)
}
