package registrar_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/csiemu/csiemu/registrar"
)

func TestTheLimitIsRefreshedAsTheCSIDriverObjectSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: ptr.To[int64](10)}}
		client := fake.NewClientset(node("u1", nil), object)
		var limit atomic.Int64
		limit.Store(4)
		d := startDirect(t, client, func(c *registrar.Config) {
			c.Direct.LegacyLimits = true
			telling(func(i *csi.NodeGetInfoResponse) { i.MaxVolumesPerNode = limit.Load() })(c)
		})
		key := corev1.ResourceName(registrar.LegacyLimitKey(driverName))
		legacy := func() int64 { q := d.node(t).Status.Capacity[key]; return q.Value() }
		require.Equal(t, int32(4), *d.csiNode(t).Spec.Drivers[0].Allocatable.Count)
		require.Equal(t, int64(4), legacy())
		limit.Store(6)
		d.settle(8 * time.Second)
		require.Equal(t, int32(4), *d.csiNode(t).Spec.Drivers[0].Allocatable.Count)
		d.settle(3 * time.Second)
		require.Equal(t, int32(6), *d.csiNode(t).Spec.Drivers[0].Allocatable.Count)
		require.Equal(t, int64(6), legacy())
		require.NoError(t, d.end())
		require.Empty(t, d.node(t).Status.Capacity)
		require.Empty(t, d.node(t).Status.Allocatable)
	})
}

func TestLegacyLimitKeys(t *testing.T) {
	t.Parallel()
	require.Equal(t, "attachable-volumes-csi-a.example", registrar.LegacyLimitKey("a.example"))
	long := registrar.LegacyLimitKey(strings.Repeat("a", 40))
	require.Len(t, long, 62)
	require.True(t, strings.HasPrefix(long, "attachable-volumes-csi-"+strings.Repeat("a", 23)))
	require.NotEqual(t, long, registrar.LegacyLimitKey(strings.Repeat("a", 41)))
	require.Len(t, registrar.LegacyLimitKey(strings.Repeat("a", 39)), 62, "62 characters are not shortened")
}

// As TestSyncDriverUpdater: the period follows the object, and no object is no period.
func TestThePeriodOfTheRefreshFollowsTheObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(node("u1", nil))
		var asked atomic.Int32
		d := startDirect(t, client, telling(func(*csi.NodeGetInfoResponse) { asked.Add(1) }))
		during := func(passes time.Duration) int32 {
			before := asked.Load()
			d.settle(passes)
			return asked.Load() - before
		}
		objects := client.StorageV1().CSIDrivers()
		require.Zero(t, during(time.Hour), "without an object")
		object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}}
		_, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Zero(t, during(time.Hour), "without a period")
		object.Spec.NodeAllocatableUpdatePeriodSeconds = ptr.To[int64](60)
		_, err = objects.Update(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, int32(10), during(10*time.Minute+time.Second))
		object = object.DeepCopy()
		object.Spec.NodeAllocatableUpdatePeriodSeconds = ptr.To[int64](600)
		_, err = objects.Update(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, int32(1), during(10*time.Minute+time.Second))
		require.NoError(t, objects.Delete(t.Context(), driverName, metav1.DeleteOptions{}))
		require.Zero(t, during(time.Hour), "the object is gone")
	})
}

// An API server before 1.33 lets nobody change an entry, its limit neither.
func TestALimitThatTheServerRefusesToChangeIsWrittenAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entry := storagev1.CSINodeDriver{Name: driverName, NodeID: "node-1", TopologyKeys: []string{zone}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](3)}}
		other := storagev1.CSINodeDriver{Name: "o.example", NodeID: "o"}
		client := fake.NewClientset(node("u1", nil), csiNode("u1", entry, other))
		var updates []string
		client.PrependReactor("update", "csinodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			now := a.(clienttesting.UpdateAction).GetObject().(*storagev1.CSINode)
			stored, err := client.Tracker().Get(a.GetResource(), "", "n1")
			if err != nil {
				return true, nil, err
			}
			for _, was := range stored.(*storagev1.CSINode).Spec.Drivers {
				for _, is := range now.Spec.Drivers {
					if was.Name == is.Name && was.Allocatable != nil && *was.Allocatable.Count != *is.Allocatable.Count {
						updates = append(updates, "refused")
						return true, nil, apierrors.NewInvalid(schema.GroupKind{Group: "storage.k8s.io", Kind: "CSINode"}, "n1", nil)
					}
				}
			}
			names := []string{}
			for _, is := range now.Spec.Drivers {
				names = append(names, is.Name)
			}
			updates = append(updates, strings.Join(names, " "))
			return false, nil, nil
		})
		d := startDirect(t, client, nil, inZone("z1", 9))
		require.True(t, d.state.Registered, "%+v", d.state)
		require.Empty(t, d.state.LastError)
		require.Equal(t, []string{"refused", "o.example", "o.example " + driverName}, updates)
		require.Equal(t, int32(9), *d.csiNode(t).Spec.Drivers[1].Allocatable.Count)
	})
}
