package registrar_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/registrar"
)

const (
	driverName = "memory.csiemu.dev"
	nodeIDs    = "csi.volume.kubernetes.io/nodeid"
	zone       = "topology.example/zone"
)

func node(uid string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(uid), Labels: labels}}
}

func csiNode(owner string, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: types.UID(owner)}}},
		Spec:       storagev1.CSINodeSpec{Drivers: drivers},
	}
}

func inZone(value string, limit int64) csitest.Option {
	return csitest.Config(func(c *emulator.Config) {
		c.Profile.MaxVolumesPerNode = limit
		for i := range c.Nodes {
			c.Nodes[i].Topology = map[string]string{zone: value}
		}
	})
}

// telling has a driver's answers to NodeGetInfo be others.
func telling(edit func(*csi.NodeGetInfoResponse)) func(*registrar.Config) {
	return func(c *registrar.Config) { c.Conn = retold{c.Conn, edit} }
}

type retold struct {
	grpc.ClientConnInterface
	edit func(*csi.NodeGetInfoResponse)
}

// Invoke is grpc.ClientConnInterface.
func (r retold) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	err := r.ClientConnInterface.Invoke(ctx, method, request, reply, options...)
	if info, is := reply.(*csi.NodeGetInfoResponse); is && err == nil {
		r.edit(info)
	}
	return err
}

// direct is a registrar in direct mode over a fake API server, in a bubble.
type direct struct {
	*running
	client *fake.Clientset
	state  registrar.State
}

func startDirect(t *testing.T, client *fake.Clientset, edit func(*registrar.Config), options ...csitest.Option) *direct {
	t.Helper()
	c := registrar.Config{
		Conn: csitest.New(t, append([]csitest.Option{csitest.MinBackoff(-1)}, options...)...).Conn(), Client: client, Direct: &registrar.Direct{NodeName: "n1"},
	}
	if edit != nil {
		edit(&c)
	}
	d := &direct{client: client, running: start(t, c)}
	d.settle(time.Second)
	return d
}

// settle lets time pass, and reads the states that came.
func (d *direct) settle(passes time.Duration) {
	<-time.After(passes) // by the bubble's clock: nobody waits
	synctest.Wait()
	for {
		select {
		case d.state = <-d.states:
		default:
			return
		}
	}
}

func (d *direct) node(t *testing.T) *corev1.Node {
	t.Helper()
	n, err := d.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	return n
}

func (d *direct) csiNode(t *testing.T) *storagev1.CSINode {
	t.Helper()
	n, err := d.client.StorageV1().CSINodes().Get(t.Context(), "n1", metav1.GetOptions{})
	require.NoError(t, err)
	return n
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

func TestANodeThatIsDeletedAndMadeAnewIsWrittenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDirect(t, fake.NewClientset(), nil, inZone("z1", 5))
		require.Contains(t, d.state.Problem, "there is no Node n1")
		for _, uid := range []string{"u1", "u2"} {
			_, err := d.client.CoreV1().Nodes().Create(t.Context(), node(uid, nil), metav1.CreateOptions{})
			require.NoError(t, err)
			d.settle(time.Second)
			require.True(t, d.state.Registered, "%+v", d.state)
			require.Equal(t, types.UID(uid), d.csiNode(t).OwnerReferences[0].UID)
			require.Contains(t, d.node(t).Annotations[nodeIDs], driverName)
			require.NoError(t, d.client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
			d.settle(time.Second)
			require.False(t, d.state.Registered)
		}
	})
}

func TestAnEntryThatSomebodyRemovesIsWrittenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDirect(t, fake.NewClientset(node("u1", nil)), nil)
		require.NoError(t, d.client.StorageV1().CSINodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		d.settle(time.Second)
		require.Len(t, d.csiNode(t).Spec.Drivers, 1)
	})
}

func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(node("u1", nil))
		left := map[string]int{"patch nodes": 3, "create csinodes": 3}
		client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			key := a.GetVerb() + " " + a.GetResource().Resource
			if left[key] == 0 {
				return false, nil, nil
			}
			left[key]--
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "n1", nil)
		})
		d := startDirect(t, client, nil)
		require.True(t, d.state.Registered, "%+v", d.state)
		require.Empty(t, d.state.LastError)
	})
}

// A former driver's entry, annotation and labels go before the new one's come.
func TestADriverThatComesBackWithAnotherNameIsWrittenInItsPlace(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	client := fake.NewClientset(node("u1", nil))
	stop := serveDriver(t, p.driver, csitest.New(t, csitest.DriverName("a.example"), inZone("z1", 3)))
	r := start(t, registrar.Config{
		CSIAddress: p.driver, Client: client, Direct: &registrar.Direct{NodeName: "n1", LegacyLimits: true},
		CSIDriver: &registrar.CSIDriver{DeleteAtEnd: true},
	})
	d := &direct{client: client, running: r}
	is := func(name, nodeID string) {
		t.Helper()
		r.want(t, "registered as "+name, func(s registrar.State) bool {
			return s.Registered && s.Driver == name && s.NodeID == nodeID && s.CSIDriverObject == registrar.CSIDriverKept && s.Problem == ""
		})
	}
	is("a.example", "node-1")
	stop()
	r.problem(t, "lost the connection")
	require.Len(t, d.csiNode(t).Spec.Drivers, 1, "a driver that is away stays registered")
	serveDriver(t, p.driver, csitest.New(t, csitest.DriverName("b.example"), csitest.Nodes("node-2")))
	is("b.example", "node-2")
	n := d.node(t)
	require.JSONEq(t, `{"b.example":"node-2"}`, n.Annotations[nodeIDs])
	require.NotContains(t, n.Labels, zone)
	require.Empty(t, n.Status.Capacity)
	entries := d.csiNode(t).Spec.Drivers
	require.Len(t, entries, 1)
	require.Equal(t, "b.example", entries[0].Name)
	objects, err := client.StorageV1().CSIDrivers().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, objects.Items, 1)
	require.Equal(t, "b.example", objects.Items[0].Name)
	require.NoError(t, r.end())
	require.Empty(t, d.csiNode(t).Spec.Drivers)
}
