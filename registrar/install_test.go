package registrar_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/csiemu/csiemu/registrar"
)

// The cases of TestInstallCSIDriver and TestUninstallCSIDriver of Kubernetes.
func TestInstallCSIDriver(t *testing.T) {
	t.Parallel()
	other := storagev1.CSINodeDriver{Name: "other.example", NodeID: "o1", TopologyKeys: []string{"other.example/rack"}}
	for name, test := range map[string]struct {
		objects []runtime.Object
		limit   int64
		count   *int32
		others  int
	}{
		"empty node":                   {[]runtime.Object{node("u1", nil)}, 0, nil, 0},
		"pre-existing from the same":   {[]runtime.Object{node("u1", map[string]string{zone: "z1"}), csiNode("u1", storagev1.CSINodeDriver{Name: driverName, NodeID: "node-1", TopologyKeys: []string{zone}})}, 0, nil, 0},
		"pre-existing with another id": {[]runtime.Object{node("u1", nil), csiNode("u1", storagev1.CSINodeDriver{Name: driverName, NodeID: "old", TopologyKeys: []string{"x"}})}, 0, nil, 0},
		"pre-existing from another":    {[]runtime.Object{node("u1", nil), csiNode("u1", other)}, 7, ptr.To[int32](7), 1},
		"owned by the previous node":   {[]runtime.Object{node("u2", nil), csiNode("u1", other)}, 7, ptr.To[int32](7), 0},
		"an existing limit":            {[]runtime.Object{node("u1", nil), csiNode("u1", storagev1.CSINodeDriver{Name: driverName, NodeID: "node-1", TopologyKeys: []string{zone}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](3)}})}, 9, ptr.To[int32](9), 0},
		"a limit that is taken away":   {[]runtime.Object{node("u1", nil), csiNode("u1", storagev1.CSINodeDriver{Name: driverName, NodeID: "node-1", TopologyKeys: []string{zone}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](3)}})}, 0, nil, 0},
		"a valid limit":                {[]runtime.Object{node("u1", nil)}, 10, ptr.To[int32](10), 0},
		"an overflown limit":           {[]runtime.Object{node("u1", nil)}, math.MaxInt32 + 1, ptr.To[int32](math.MaxInt32), 0},
	} {
		bubble(t, name, func(t *testing.T) {
			d := startDirect(t, fake.NewClientset(test.objects...), nil, inZone("z1", test.limit))
			require.True(t, d.state.Registered, "%+v", d.state)
			n, c := d.node(t), d.csiNode(t)
			require.JSONEq(t, `{"memory.csiemu.dev":"node-1"}`, n.Annotations[nodeIDs])
			require.Equal(t, "z1", n.Labels[zone])
			require.Equal(t, n.UID, c.OwnerReferences[0].UID)
			require.Contains(t, c.Annotations[corev1.MigratedPluginsAnnotationKey], "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,")
			require.Len(t, c.Spec.Drivers, test.others+1)
			e := c.Spec.Drivers[test.others]
			require.Equal(t, "node-1", e.NodeID)
			require.Equal(t, []string{zone}, e.TopologyKeys)
			if test.count == nil {
				require.Nil(t, e.Allocatable)
			} else {
				require.Equal(t, test.count, e.Allocatable.Count)
			}
			require.NoError(t, d.end())
			n, c = d.node(t), d.csiNode(t)
			require.Len(t, c.Spec.Drivers, test.others, "the object stays, the entry goes")
			require.NotContains(t, n.Annotations, nodeIDs)
			require.NotContains(t, n.Annotations, "csiemu.dev/topology-labels")
		})
	}
}

func TestLabelsOfOthersAreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node    *corev1.Node
		drivers []storagev1.CSINodeDriver
		left    bool
	}{
		"a label that was there stays":               {node("u1", map[string]string{zone: "z1"}), nil, true},
		"a label that was added goes":                {node("u1", nil), nil, false},
		"one that another driver uses as well stays": {node("u1", nil), []storagev1.CSINodeDriver{{Name: "o.example", NodeID: "o", TopologyKeys: []string{zone}}}, true},
	} {
		bubble(t, name, func(t *testing.T) {
			d := startDirect(t, fake.NewClientset(test.node, csiNode("u1", test.drivers...)), nil, inZone("z1", 0))
			require.Equal(t, "z1", d.node(t).Labels[zone])
			require.NoError(t, d.end())
			_, left := d.node(t).Labels[zone]
			require.Equal(t, test.left, left)
		})
	}
}

func TestATopologyValueThatCollidesIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := startDirect(t, fake.NewClientset(node("u1", map[string]string{zone: "elsewhere"})), nil, inZone("z1", 0))
		require.False(t, d.state.Registered)
		require.Contains(t, d.state.Problem, registrar.ErrTopologyCollision.Error())
		require.Equal(t, "elsewhere", d.node(t).Labels[zone])
		n := d.node(t)
		n.Labels = nil
		_, err := d.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
		d.settle(time.Second)
		require.True(t, d.state.Registered, "once the label is gone")
	})
}

// What NodeGetInfo may leave out or get wrong, as TestInstallCSIDriver has it.
func TestAnswersOfNodeGetInfo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit    func(*csi.NodeGetInfoResponse)
		problem string
	}{
		"nil topology":     {func(i *csi.NodeGetInfoResponse) { i.AccessibleTopology = nil }, ""},
		"empty topology":   {func(i *csi.NodeGetInfoResponse) { i.AccessibleTopology = &csi.Topology{} }, ""},
		"a negative limit": {func(i *csi.NodeGetInfoResponse) { i.AccessibleTopology, i.MaxVolumesPerNode = nil, -1 }, ""},
		"an empty node id": {func(i *csi.NodeGetInfoResponse) { i.NodeId = "" }, "the node id is empty"},
	} {
		bubble(t, name, func(t *testing.T) {
			d := startDirect(t, fake.NewClientset(node("u1", nil), csiNode("u1")), telling(test.edit), inZone("z1", 0))
			require.Contains(t, d.state.Problem, test.problem)
			require.Equal(t, test.problem == "", d.state.Registered)
			require.NotContains(t, d.node(t).Labels, zone)
			entries := d.csiNode(t).Spec.Drivers
			if test.problem != "" {
				require.Empty(t, entries)
				require.NotContains(t, d.node(t).Annotations, nodeIDs)
				return
			}
			require.Len(t, entries, 1)
			require.Empty(t, entries[0].TopologyKeys)
			require.Nil(t, entries[0].Allocatable)
		})
	}
}

// The annotations and labels of TestUninstallCSIDriver and of
// TestInstallCSIDriverExistingAnnotation.
func TestAnnotationsThatAreThere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, registered, after, problem string
	}{
		"none":                     {"", `{"memory.csiemu.dev":"node-1"}`, "", ""},
		"null":                     {"null", `{"memory.csiemu.dev":"node-1"}`, "", ""},
		"of another driver":        {`{"o.example":"o"}`, `{"o.example":"o","memory.csiemu.dev":"node-1"}`, `{"o.example":"o"}`, ""},
		"of the driver, another":   {`{"memory.csiemu.dev":"old"}`, `{"memory.csiemu.dev":"node-1"}`, "", ""},
		"one that cannot be read":  {`{"o.exa`, `{"o.exa`, `{"o.exa`, "read annotation csi.volume.kubernetes.io/nodeid"},
		"one with another content": {`["o"]`, `["o"]`, `["o"]`, "mend or remove it"},
	} {
		bubble(t, name, func(t *testing.T) {
			n := node("u1", nil)
			if test.before != "" {
				n.Annotations = map[string]string{nodeIDs: test.before}
			}
			d := startDirect(t, fake.NewClientset(n), nil)
			require.Contains(t, d.state.Problem, test.problem)
			require.Equal(t, test.problem == "", d.state.Registered)
			if test.problem == "" {
				require.JSONEq(t, test.registered, d.node(t).Annotations[nodeIDs])
				require.NoError(t, d.end())
			} else {
				require.ErrorContains(t, d.end(), test.problem, "what is left is told")
			}
			require.Equal(t, test.after, d.node(t).Annotations[nodeIDs])
		})
	}
}

// As TestUninstallCSIDriver: what is gone already need not be taken back.
func TestWhatIsGoneAtTheEndIsNoError(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*testing.T, *direct){
		"the CSINode": func(t *testing.T, d *direct) {
			require.NoError(t, d.client.StorageV1().CSINodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		},
		"the Node": func(t *testing.T, d *direct) {
			require.NoError(t, d.client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		},
		"the entry": func(t *testing.T, d *direct) {
			_, err := d.client.StorageV1().CSINodes().Update(t.Context(), csiNode("u1"), metav1.UpdateOptions{})
			require.NoError(t, err)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			d := startDirect(t, fake.NewClientset(node("u1", nil)), func(c *registrar.Config) { c.Direct.LegacyLimits = true }, inZone("z1", 4))
			require.True(t, d.state.Registered)
			remove(t, d)
			require.NoError(t, d.end())
		})
	}
}

// As TestSetMigrationAnnotation.
func TestMigratedPlugins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plugins []string
		before  string
		after   string
	}{
		"none, none before": {[]string{}, "", ""},
		"none any more":     {[]string{}, "kubernetes.io/gce-pd", ""},
		"some":              {[]string{"kubernetes.io/gce-pd", "kubernetes.io/aws-ebs"}, "", "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"},
		"the same":          {[]string{"kubernetes.io/gce-pd"}, "kubernetes.io/gce-pd", "kubernetes.io/gce-pd"},
		"others":            {[]string{"kubernetes.io/gce-pd"}, "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"},
	} {
		bubble(t, name, func(t *testing.T) {
			object := csiNode("u1")
			if test.before != "" {
				object.Annotations = map[string]string{corev1.MigratedPluginsAnnotationKey: test.before}
			}
			d := startDirect(t, fake.NewClientset(node("u1", nil), object), func(c *registrar.Config) { c.Direct.MigratedPlugins = slices.Clone(test.plugins) })
			after, has := d.csiNode(t).Annotations[corev1.MigratedPluginsAnnotationKey]
			require.Equal(t, test.after, after)
			require.Equal(t, test.after != "", has)
		})
	}
}
