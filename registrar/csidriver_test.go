package registrar_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/registrar"
)

func csiDriver(t *testing.T, client *fake.Clientset) *storagev1.CSIDriver {
	t.Helper()
	found, err := client.StorageV1().CSIDrivers().Get(t.Context(), driverName, metav1.GetOptions{})
	require.NoError(t, err)
	return found
}

func keep(c *registrar.Config) { c.CSIDriver = &registrar.CSIDriver{} }

func TestTheCSIDriverObjectIsMadeFromTheCapabilities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(node("u1", nil))
		d := startDirect(t, client, func(c *registrar.Config) {
			c.CSIDriver = &registrar.CSIDriver{LifecycleModes: []string{"Persistent", "Ephemeral"}, UpdatePeriod: time.Minute, DeleteAtEnd: true}
		}, csitest.Without("PUBLISH_UNPUBLISH_VOLUME"), csitest.Without("VOLUME_MOUNT_GROUP"))
		require.Equal(t, registrar.CSIDriverKept, d.state.CSIDriverObject, "%+v", d.state)
		text, err := json.Marshal(csiDriver(t, client).Spec)
		require.NoError(t, err)
		require.JSONEq(t, `{"attachRequired":false,"podInfoOnMount":true,"volumeLifecycleModes":["Persistent","Ephemeral"],
			"storageCapacity":true,"fsGroupPolicy":"ReadWriteOnceWithFSType","requiresRepublish":false,"seLinuxMount":false,
			"nodeAllocatableUpdatePeriodSeconds":60}`, string(text))
		require.NoError(t, d.end())
		_, err = client.StorageV1().CSIDrivers().Get(context.WithoutCancel(t.Context()), driverName, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
	})
}

func TestTheCSIDriverObjectIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(node("u1", nil))
		d := startDirect(t, client, keep)
		want := csiDriver(t, client).Spec
		require.True(t, *want.AttachRequired)
		require.Equal(t, storagev1.FileFSGroupPolicy, *want.FSGroupPolicy)

		require.NoError(t, client.StorageV1().CSIDrivers().Delete(t.Context(), driverName, metav1.DeleteOptions{}))
		d.settle(time.Second)
		require.Equal(t, want, csiDriver(t, client).Spec, "made again")

		changed := csiDriver(t, client)
		changed.Spec.StorageCapacity, changed.Spec.AttachRequired = ptr.To(false), ptr.To(false)
		client.ClearActions()
		_, err := client.StorageV1().CSIDrivers().Update(t.Context(), changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		d.settle(time.Second)
		require.Equal(t, want, csiDriver(t, client).Spec, "restored")
		var verbs []string
		for _, a := range client.Actions() {
			if a.GetResource().Resource == "csidrivers" && a.GetVerb() != "get" {
				verbs = append(verbs, a.GetVerb())
			}
		}
		require.Equal(t, []string{"update", "delete", "create"}, verbs, "after ours, as attachRequired cannot be changed")

		for range 100 {
			changed = csiDriver(t, client)
			changed.Spec.StorageCapacity = ptr.To(false)
			_, err = client.StorageV1().CSIDrivers().Update(t.Context(), changed, metav1.UpdateOptions{})
			require.NoError(t, err)
			d.settle(100 * time.Millisecond)
		}
		require.Less(t, len(client.Actions()), 400, "it does not fight at full speed")
		d.settle(2 * time.Minute)
		require.Equal(t, want, csiDriver(t, client).Spec)
		require.NoError(t, d.end())
		require.Equal(t, want, csiDriver(t, client).Spec, "it stays, other nodes keep it too")
	})
}

func TestACSIDriverObjectOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		theirs := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}
		client := fake.NewClientset(node("u1", nil), theirs)
		d := startDirect(t, client, func(c *registrar.Config) { c.CSIDriver = &registrar.CSIDriver{DeleteAtEnd: true} })
		require.Equal(t, registrar.CSIDriverForeign, d.state.CSIDriverObject)
		require.Contains(t, d.state.Problem, "somebody else owns the CSIDriver object")
		require.True(t, d.state.Registered, "the rest goes on")
		require.NoError(t, d.end())
		found, err := client.StorageV1().CSIDrivers().Get(context.WithoutCancel(t.Context()), driverName, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, theirs.Spec, found.Spec)
	})
}
