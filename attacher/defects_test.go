package attacher_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

// Each of these is a defect that external-attacher has or had; the number is that
// of its issue tracker.

// 291, 587: what was just done is done again because the cache does not know it.
func TestStaleCachesRepeatNothing(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Resync = 10 * time.Second // asks again, by what the cache has
		f.start()
		f.server.Put(vaOf(vaName, pvName))
		f.server.Hold("persistentvolumes")
		f.settle()
		f.server.Hold("volumeattachments")
		writes := len(f.writes())
		f.pass(time.Minute)
		require.Len(f, f.writes(), writes)
		f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
		f.server.Release("volumeattachments")
		f.settle()

		f.server.Delete("volumeattachments", "", vaName)
		f.settle()
		f.server.Hold("volumeattachments")
		f.pass(time.Minute)
		require.True(f, f.gone())
		f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
		f.server.Release("volumeattachments")
		f.server.Release("persistentvolumes")
	})
}

// The same while each watch event comes late.
func TestCachesThatAreBlindDuringTheWholeLife(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Resync = time.Second
		f.server.Put(vaOf(vaName, pvName))
		f.onRequest(func(context.Context, kubetest.Request) *apierrors.StatusError {
			f.server.Hold("volumeattachments") // from the first write on
			f.server.Hold("persistentvolumes")
			return nil
		})
		f.start()
		f.pass(time.Minute)
		f.attached()
		f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
		require.Equal(f, attachWrites, f.writes())
		f.server.Release("volumeattachments")
		f.server.Release("persistentvolumes")
		f.settle()

		f.server.Delete("volumeattachments", "", vaName)
		f.pass(time.Minute)
		require.True(f, f.gone())
		f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
		require.Equal(f, append(attachWrites[:3:3], "patch volumeattachments/va"), f.writes())
		f.server.Release("volumeattachments")
		f.server.Release("persistentvolumes")
		f.settle()

		f.server.Delete("persistentvolumes", "", pvName)
		f.pass(time.Minute)
		require.Len(f, f.writes(), 5)
		f.server.Release("volumeattachments")
		f.server.Release("persistentvolumes")
	})
}

// 761: a burst of detaches that the driver is slow with starves attaches.
func TestDetachesDoNotStarveAttaches(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Workers = 2
		const burst = 20
		for i := range burst {
			name := fmt.Sprintf("old-%d", i)
			f.server.Put(pvOf(name, f.volume(name)))
			f.server.Put(vaOf(name, name))
		}
		f.start()
		f.double.Inject("ControllerUnpublishVolume: sleep(10s)")
		for i := range burst {
			f.server.Delete("volumeattachments", "", fmt.Sprintf("old-%d", i))
		}
		f.settle()
		f.server.Put(vaOf(vaName, pvName))
		f.settle()
		require.True(f, f.va().Status.Attached, "it waits behind detaches")
		f.pass(burst * 10 * time.Second)
		f.double.Journal().WantCount(f, burst, unpublished)
	})
}

// Attaches that fail again and again do not hold up one that can be done.
func TestRetriesDoNotStarveFirstAttempts(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Workers = 1
		for i := range 20 {
			f.server.Put(vaOf(fmt.Sprintf("bad-%d", i), "unknown"))
		}
		f.start()
		f.pass(5 * time.Second)
		f.server.Put(vaOf(vaName, pvName))
		f.settle()
		require.True(f, f.va().Status.Attached)
	})
}

// Unreported: writes under the limit of the driver's call have it detached twice.
func TestWritesHaveALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Timeout = 2 * time.Second
		f.double.Inject("ControllerPublishVolume: sleep(1500ms)")
		f.double.Inject("ControllerUnpublishVolume: sleep(1500ms)")
		f.onRequest(func(context.Context, kubetest.Request) *apierrors.StatusError {
			<-time.After(time.Second)
			return nil
		})
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.pass(10 * time.Second)
		f.attached()
		f.server.Delete("volumeattachments", "", vaName)
		f.pass(10 * time.Second)
		require.True(f, f.gone())
		f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
		f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
	})
}

// A request that hangs ends at its limit, and the work goes on.
func TestRequestsThatHang(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		var hung atomic.Bool
		f.onRequest(func(ctx context.Context, r kubetest.Request) *apierrors.StatusError {
			if r.Verb == "patch" && hung.CompareAndSwap(false, true) {
				<-ctx.Done()
			}
			return nil
		})
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.pass(time.Minute)
		f.attached()
	})
}

// external-provisioner 1217: others change finalizers at the same time.
func TestFinalizersThatOthersChangeMeanwhile(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.start()
		f.server.Hold("persistentvolumes")
		f.server.Edit("persistentvolumes", "", pvName, func(pv map[string]any) {
			pv["metadata"].(map[string]any)["finalizers"] = []any{"kubernetes.io/pv-protection"}
		})
		f.server.Put(vaOf(vaName, pvName))
		f.settle() // at the first attempt
		f.attached()
		require.ElementsMatch(f, []string{"kubernetes.io/pv-protection", finalizer}, f.pv().Finalizers)
		f.server.Release("persistentvolumes")
	})
}

// An answer for a VolumeAttachment that is gone is not written to the next one of
// the same name, which names are made for.
func TestAnswersAreForOneObjectOnly(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.double.Inject("ControllerPublishVolume: 1*sleep(5s)->ok")
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
			metadata := va["metadata"].(map[string]any)
			delete(metadata, "finalizers") // by force
			metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		})
		f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "unknown" }))
		f.pass(10 * time.Second)
		require.False(f, f.va().Status.Attached)
	}, csitest.Lenient())
}

// What was in the back-off is tried at once when somebody touches it; what the
// attacher writes itself is no such touch.
func TestBackOff(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.RetryStart, f.config.RetryMax = 10*time.Second, time.Minute
		f.double.Inject("ControllerPublishVolume: return(INTERNAL)")
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		for _, calls := range []int{1, 2, 3, 4, 5} {
			f.double.Journal().WantCount(f, calls, "ControllerPublishVolume")
			f.pass(min(10*time.Second<<(calls-1), time.Minute))
		}
		f.double.Journal().WantCount(f, 6, "ControllerPublishVolume")
		f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
			va["metadata"].(map[string]any)["labels"] = map[string]any{"touched": "yes"}
		})
		f.settle()
		f.double.Journal().WantCount(f, 7, "ControllerPublishVolume")
	}, csitest.Lenient()) // who touches it wants no back-off
}

// 400: whatever the error of an attach was, a detach follows.
func TestStatusThatSomebodyResets(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) { va["status"] = map[string]any{"attached": false} })
		f.settle()
		f.attached()
		f.double.Journal().WantCount(f, 2, published)
	}, csitest.Lenient())
}

func TestAccessModes(t *testing.T) {
	t.Parallel()
	const rwo, rox, rwx, rwop = corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod
	for name, test := range map[string]struct {
		modes        []corev1.PersistentVolumeAccessMode
		without      string // SINGLE_NODE_MULTI_WRITER
		with         string
		block, fails bool
	}{
		"RWO":              {modes: []corev1.PersistentVolumeAccessMode{rwo}, without: "SINGLE_NODE_WRITER", with: "SINGLE_NODE_MULTI_WRITER"},
		"RWO, block":       {modes: []corev1.PersistentVolumeAccessMode{rwo}, without: "SINGLE_NODE_WRITER", with: "SINGLE_NODE_MULTI_WRITER", block: true},
		"ROX":              {modes: []corev1.PersistentVolumeAccessMode{rox}, without: "MULTI_NODE_READER_ONLY", with: "MULTI_NODE_READER_ONLY"},
		"RWX":              {modes: []corev1.PersistentVolumeAccessMode{rwx}, without: "MULTI_NODE_MULTI_WRITER", with: "MULTI_NODE_MULTI_WRITER"},
		"RWX and others":   {modes: []corev1.PersistentVolumeAccessMode{rwo, rox, rwx}, without: "MULTI_NODE_MULTI_WRITER", with: "MULTI_NODE_MULTI_WRITER"},
		"RWOP":             {modes: []corev1.PersistentVolumeAccessMode{rwop}, without: "SINGLE_NODE_WRITER", with: "SINGLE_NODE_SINGLE_WRITER"},
		"RWOP with ROX":    {modes: []corev1.PersistentVolumeAccessMode{rwop, rox}, fails: true},
		"RWX, block":       {modes: []corev1.PersistentVolumeAccessMode{rwx}, without: "MULTI_NODE_MULTI_WRITER", with: "MULTI_NODE_MULTI_WRITER", block: true},
		"RWOP with others": {modes: []corev1.PersistentVolumeAccessMode{rwop, rwo}, fails: true},
		"ROX with RWO":     {modes: []corev1.PersistentVolumeAccessMode{rox, rwo}, fails: true},
		"none":             {fails: true},
		"unknown":          {modes: []corev1.PersistentVolumeAccessMode{"Whatever"}, fails: true},
	} {
		for has, want := range map[bool]string{false: test.without, true: test.with} {
			t.Run(fmt.Sprintf("%s, capability %t", name, has), func(t *testing.T) {
				t.Parallel()
				options := []csitest.Option{csitest.Lenient()}
				if !has {
					options = append(options, csitest.Without("SINGLE_NODE_MULTI_WRITER"))
				}
				run(t, func(f *fixture) {
					f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) {
						pv.Spec.AccessModes = test.modes
						pv.Spec.MountOptions = []string{"a", "b"}
						if test.block {
							pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
						}
					}))
					f.server.Put(vaOf(vaName, pvName))
					f.start()
					got := f.capabilityOf()
					if test.fails {
						require.Nil(f, got)
						require.NotNil(f, f.va().Status.AttachError)
						return
					}
					require.Equal(f, want, got.GetAccessMode().GetMode().String())
					require.Equal(f, test.block, got.GetBlock() != nil)
					if !test.block {
						require.Equal(f, []string{"a", "b"}, got.GetMount().GetMountFlags())
					}
				}, options...)
			})
		}
	}
}
