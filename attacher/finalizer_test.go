package attacher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestPersistentVolumeFinalizer(t *testing.T) {
	t.Parallel()
	withFinalizer := func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other/one", finalizer, "other/two"} }
	remove := func(f *fixture) { f.server.Delete("persistentvolumes", "", pvName); f.settle() }
	for name, test := range map[string]struct {
		do   func(f *fixture)
		left bool // whether our finalizer is
	}{
		"removed when the last VolumeAttachment goes": {
			do: func(f *fixture) {
				detaching(f, vaOf(vaName, pvName), func(f *fixture) {
					f.server.Edit("persistentvolumes", "", pvName, func(pv map[string]any) {
						m := pv["metadata"].(map[string]any)
						m["finalizers"] = append([]any{"other/one"}, append(m["finalizers"].([]any), "other/two")...)
					})
					remove(f)
					require.Contains(f, f.pv().Finalizers, finalizer)
				})
			},
		},
		"kept while another VolumeAttachment is there": {
			do: func(f *fixture) {
				f.server.Put(put(vaOf("second", pvName), func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "unknown" }))
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				detaching(f, vaOf(vaName, pvName), remove)
			},
			left: true,
		},
		"removed when the volume is deleted": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				f.start()
				remove(f)
			},
		},
		"removed when the volume was deleted before the start": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				f.server.Delete("persistentvolumes", "", pvName)
				f.start()
			},
		},
		"kept while the volume is not deleted": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				f.start()
			},
			left: true,
		},
		"tried again when the removal fails": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				f.start()
				f.refuse(2, "patch persistentvolumes/pv")
				remove(f)
				require.Contains(f, f.pv().Finalizers, finalizer)
				f.pass(10 * time.Second)
			},
		},
		"removed after an attach that failed early": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) {
					pv.Finalizers, pv.Spec.AccessModes = []string{"other/one", "other/two"}, nil
				}))
				f.server.Put(vaOf(vaName, pvName))
				f.start()
				require.Contains(f, f.pv().Finalizers, finalizer)
				require.Empty(f, f.va().Finalizers)
				f.server.Delete("volumeattachments", "", vaName)
				remove(f)
			},
		},
		"removed when the last VolumeAttachment went unseen": {
			do: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), withFinalizer))
				f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }))
				f.start()
				remove(f)
				require.Contains(f, f.pv().Finalizers, finalizer)
				f.server.Hold("volumeattachments")
				f.server.Delete("volumeattachments", "", vaName)
				f.server.Cut("volumeattachments")
				f.server.Release("volumeattachments")
				f.pass(time.Minute)
			},
		},
		"one of a foreign volume is removed too": {
			do: func(f *fixture) {
				f.server.Put(put(put(pvOf(pvName, f.handle), withFinalizer), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other.example.com" }))
				f.start()
				remove(f)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				test.do(f)
				f.settle()
				require.Contains(f, f.pv().Finalizers, "other/one", "finalizers of others stay")
				require.Contains(f, f.pv().Finalizers, "other/two", "finalizers of others stay")
				if test.left {
					require.Contains(f, f.pv().Finalizers, finalizer)
				} else {
					require.NotContains(f, f.pv().Finalizers, finalizer)
				}
			})
		})
	}
}

func TestVolumesWithoutOurFinalizerAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*corev1.PersistentVolume){
		"of this driver":            func(*corev1.PersistentVolume) {},
		"of another driver":         func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other.example.com" },
		"of a plugin, not migrated": migrated,
		"of no driver": func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.server.Put(put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other/one"} }), edit))
				f.server.Put(put(vaOf("foreign", pvName), func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
				f.start()
				f.server.Delete("volumeattachments", "", "foreign")
				f.server.Delete("persistentvolumes", "", pvName)
				f.pass(time.Minute)
				require.Empty(f, f.writes())
			})
		})
	}
}
