package kube_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/csiemu/csiemu/internal/role/kube"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

// kept is what the test keeps of a volume.
type kept struct{ name, version, phase string }

func (k *kept) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: k.name, ResourceVersion: k.version}
}

func TestInformerHasOnlyWhatIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		volume := func(name string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
			return &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
				Status:     corev1.PersistentVolumeStatus{Phase: phase},
			}
		}
		server := kubetest.New(volume("a", corev1.VolumeBound))
		client := server.Client()
		informer, err := kube.NewInformer(kube.InformerConfig[*corev1.PersistentVolumeList]{
			Client: client, Resource: client.CoreV1().PersistentVolumes(), Example: &corev1.PersistentVolume{},
			Keep: func(o runtime.Object) any {
				pv := o.(*corev1.PersistentVolume)
				return &kept{pv.Name, pv.ResourceVersion, string(pv.Status.Phase)}
			},
			Resync:   time.Minute,
			Indexers: cache.Indexers{"phase": func(o any) ([]string, error) { return []string{o.(*kept).phase}, nil }},
		})
		require.NoError(t, err)
		resynced := 0
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
			if old.(*kept).version == now.(*kept).version {
				resynced++
			}
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { informer.RunWithContext(ctx); close(done) }()
		phase := func(want string) (names []string) {
			synctest.Wait()
			objects, err := informer.GetIndexer().ByIndex("phase", want)
			require.NoError(t, err)
			for _, o := range objects {
				names = append(names, o.(*kept).name)
			}
			return names
		}
		require.Equal(t, []string{"a"}, phase("Bound"))
		server.Put(volume("b", corev1.VolumeReleased))
		require.Equal(t, []string{"b"}, phase("Released"))

		// What happens while nobody watches is seen afterwards.
		server.Hold("persistentvolumes")
		server.Put(volume("b", corev1.VolumeBound))
		server.Delete("persistentvolumes", "", "a")
		server.Cut("persistentvolumes")
		server.Release("persistentvolumes")
		<-time.After(50 * time.Second)
		require.Equal(t, []string{"b"}, phase("Bound"))
		require.Empty(t, phase("Released"))

		<-time.After(2 * time.Minute)
		synctest.Wait()
		require.Positive(t, resynced)
		cancel()
		<-done
	})
}
