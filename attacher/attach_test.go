package attacher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/csitest"
)

const published = "ControllerPublishVolume{code=OK}"

// attachWrites are the writes of an attach.
var attachWrites = []string{"patch persistentvolumes/pv", "patch volumeattachments/va", "patch volumeattachments/va/status"}

func TestAttach(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(f *fixture){
		"a VolumeAttachment that is there at the start": func(f *fixture) {
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.attached()
			require.Equal(f, attachWrites, f.writes())
		},
		"a VolumeAttachment that is added": func(f *fixture) {
			f.start()
			f.server.Put(vaOf(vaName, pvName))
			f.settle()
			f.attached()
			require.Equal(f, attachWrites, f.writes())
		},
		"the volume carries the finalizer already": func(f *fixture) {
			f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other/one", finalizer} }))
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.attached()
			require.Equal(f, attachWrites[1:], f.writes())
		},
		"finalizers of others stay": func(f *fixture) {
			f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other/one"} }))
			f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"other/two"} }))
			f.start()
			f.attached()
			require.ElementsMatch(f, []string{"other/one", finalizer}, f.pv().Finalizers)
			require.ElementsMatch(f, []string{"other/two", finalizer}, f.va().Finalizers)
		},
		"annotations of others stay": func(f *fixture) {
			f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Annotations = map[string]string{"a/b~c": "d"} }))
			f.start()
			f.attached()
			require.Equal(f, map[string]string{"a/b~c": "d", annotation: nodeID, handleNote: f.handle}, f.va().Annotations)
		},
		"one that is attached already is left alone": func(f *fixture) {
			f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }))
			f.start()
			require.Empty(f, f.writes())
			f.double.Journal().Never(f, "ControllerPublishVolume")
		},
		"one of another driver is left alone": func(f *fixture) {
			f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
			f.start()
			require.Empty(f, f.writes())
			f.double.Journal().Never(f, "ControllerPublishVolume")
		},
		"the publish context is stored": func(f *fixture) {
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			require.NotEmpty(f, f.va().Status.AttachmentMetadata)
		},
		"readonly": func(f *fixture) {
			f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }))
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.double.Journal().Want(f, "ControllerPublishVolume{request.readonly=true}")
		},
		"attributes, file system and mount options": func(f *fixture) {
			f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.VolumeAttributes = map[string]string{"array": "one"}
				pv.Spec.CSI.FSType = "xfs"
				pv.Spec.MountOptions = []string{"noatime"}
			}))
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.double.Journal().Want(f, "ControllerPublishVolume{context.array=one,request.volume_capability.mount.fs_type=xfs}")
		},
		"a file system for volumes that name none": func(f *fixture) {
			f.config.DefaultFSType = "btrfs"
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.double.Journal().Want(f, "ControllerPublishVolume{request.volume_capability.mount.fs_type=btrfs}")
		},
		"secrets": func(f *fixture) {
			f.server.Put(secretOf(map[string]string{"user": "u", "password": "p"}))
			f.server.Put(put(pvOf(pvName, f.handle), withSecret))
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.attached()
			require.Len(f, f.secretsOf("ControllerPublishVolume"), 2)
		},
		"empty secrets": func(f *fixture) {
			f.server.Put(secretOf(nil))
			f.server.Put(put(pvOf(pvName, f.handle), withSecret))
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.attached()
			require.Empty(f, f.secretsOf("ControllerPublishVolume"))
		},
		"an inline volume, without the finalizer of any volume": func(f *fixture) {
			f.server.Put(inlineVA(f.handle))
			f.start()
			f.attached()
			require.Equal(f, attachWrites[1:], f.writes())
			require.Equal(f, map[string]string{annotation: nodeID}, f.va().Annotations)
		},
		"a volume that comes after its VolumeAttachment": func(f *fixture) {
			f.server.Put(vaOf(vaName, "late"))
			f.start()
			require.NotNil(f, f.va().Status.AttachError)
			f.server.Put(pvOf("late", f.handle))
			f.settle() // at once, not after the back-off
			f.attached()
		},
		"a driver that comes to its node after the VolumeAttachment": func(f *fixture) {
			f.server.Delete("csinodes", "", nodeID)
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			require.NotNil(f, f.va().Status.AttachError)
			f.server.Put(csiNode(nodeID))
			f.settle()
			f.attached()
		},
		"a volume that the cache does not have yet": func(f *fixture) {
			f.start()
			f.server.Hold("persistentvolumes")
			f.server.Put(pvOf("new", f.handle))
			f.server.Put(vaOf(vaName, "new"))
			f.settle()
			f.attached()
			f.server.Release("persistentvolumes")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				test(f)
				require.Nil(f, f.va().Status.AttachError)
				f.pass(time.Minute) // nothing is done again
				f.double.Journal().WantCount(f, min(1, len(f.double.Attachments())), published)
			})
		})
	}
}

func TestAttachThatFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(f *fixture)
		message string
		code    codes.Code
		// finalized: the failure came after our finalizer was written.
		finalized bool
	}{
		"unknown volume": {
			prepare: func(f *fixture) { f.server.Delete("persistentvolumes", "", pvName) },
			message: `persistentvolumes "pv" not found`,
		},
		"a volume that is marked for deletion": {
			prepare: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other/one"} }))
				f.server.Delete("persistentvolumes", "", pvName)
			},
			message: `PersistentVolume "pv" is marked for deletion`,
		},
		"a volume of another driver": {
			prepare: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other.example.com" }))
			},
			message: `PersistentVolume "pv" belongs to driver "other.example.com", not to "memory.csiemu.dev"`,
		},
		"a volume that is not of CSI": {
			prepare: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
				}))
			},
			message: `PersistentVolume "pv" has a source that is not of CSI and was not migrated`,
		},
		"neither source": {
			prepare: func(f *fixture) {
				f.server.Put(put(vaOf(vaName, ""), func(va *storagev1.VolumeAttachment) { va.Spec.Source = storagev1.VolumeAttachmentSource{} }))
			},
			message: "neither inlineVolumeSpec nor persistentVolumeName is in the source of the VolumeAttachment",
		},
		"both sources": {
			prepare: func(f *fixture) {
				f.server.Put(put(inlineVA(f.handle), func(va *storagev1.VolumeAttachment) {
					va.Spec.Source.PersistentVolumeName = new(pvName)
				}))
			},
			message: "both inlineVolumeSpec and persistentVolumeName are in the source of the VolumeAttachment",
		},
		"an inline volume that is not of CSI": {
			prepare: func(f *fixture) {
				f.server.Put(put(inlineVA(f.handle), func(va *storagev1.VolumeAttachment) { va.Spec.Source.InlineVolumeSpec.CSI = nil }))
			},
			message: "the inline volume has no CSI source",
		},
		"a node without CSINode": {
			prepare: func(f *fixture) { f.server.Delete("csinodes", "", nodeID) },
			message: `"node-1" not found`,
		},
		"a CSINode without the driver": {
			prepare: func(f *fixture) {
				f.server.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: nodeID}})
			},
			message: "CSINode node-1 does not contain driver memory.csiemu.dev",
		},
		"missing secrets": {
			prepare: func(f *fixture) { f.server.Put(put(pvOf(pvName, f.handle), withSecret)) },
			message: `load secret "ns/secret": secrets "secret" not found`,
		},
		"no access mode": {
			prepare: func(f *fixture) {
				f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = nil }))
			},
			message: "unsupported AccessMode combination: []",
		},
		"the driver refuses": {
			prepare:   func(f *fixture) { f.double.Inject("ControllerPublishVolume: return(RESOURCE_EXHAUSTED)") },
			message:   "ResourceExhausted",
			code:      codes.ResourceExhausted,
			finalized: true,
		},
		"the driver takes too long": {
			prepare: func(f *fixture) {
				f.config.Timeout = 3 * time.Second
				f.double.Inject("ControllerPublishVolume: sleep(10s)")
			},
			message:   "deadline",
			code:      codes.DeadlineExceeded,
			finalized: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.server.Put(vaOf(vaName, pvName))
				test.prepare(f)
				f.start()
				f.pass(5 * time.Second)
				va := f.va()
				require.False(f, va.Status.Attached)
				require.NotNil(f, va.Status.AttachError)
				require.Contains(f, va.Status.AttachError.Message, test.message)
				if test.code == codes.OK {
					require.Nil(f, va.Status.AttachError.ErrorCode)
				} else {
					require.EqualValues(f, test.code, *va.Status.AttachError.ErrorCode)
				}
				if test.finalized {
					require.Equal(f, []string{finalizer}, va.Finalizers)
				} else {
					require.Empty(f, va.Finalizers, "it could not be deleted")
					f.double.Journal().Never(f, "ControllerPublishVolume")
				}
			})
		})
	}
}

func TestAttachIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(f *fixture){
		"the driver fails":                  func(f *fixture) { f.double.Inject("ControllerPublishVolume: 2*return(UNAVAILABLE)->ok") },
		"the volume's finalizer is refused": func(f *fixture) { f.refuse(2, "patch persistentvolumes/pv") },
		"the claim is refused":              func(f *fixture) { f.refuse(2, "patch volumeattachments/va") },
		"the status is refused":             func(f *fixture) { f.refuse(2, "patch volumeattachments/va/status") },
		"the secret comes late":             func(f *fixture) { f.server.Put(put(pvOf(pvName, f.handle), withSecret)) },
		"the error cannot be recorded": func(f *fixture) {
			f.double.Inject("ControllerPublishVolume: 1*return(INTERNAL)->ok")
			f.refuse(1, "patch volumeattachments/va/status")
		},
		"an unknown volume, and the error cannot be recorded": func(f *fixture) {
			f.server.Delete("persistentvolumes", "", pvName)
			f.refuse(1, "patch volumeattachments/va/status")
			time.AfterFunc(5*time.Second, func() { f.server.Put(pvOf(pvName, f.handle)) })
		},
		"the driver answers after the limit": func(f *fixture) {
			f.config.Timeout = time.Second
			f.double.Inject("ControllerPublishVolume: 1*sleep(2s)->ok")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.server.Put(vaOf(vaName, pvName))
				prepare(f)
				f.start()
				require.False(f, f.va().Status.Attached)
				f.server.Put(secretOf(nil))
				f.pass(10 * time.Second)
				f.attached()
				require.Nil(f, f.va().Status.AttachError, "an error stays on what is attached")
			})
		})
	}
}

func TestAttachWithoutReadOnlyCapability(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.server.Put(put(pvOf(pvName, f.handle), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }))
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.double.Journal().Want(f, "ControllerPublishVolume{request.readonly=false}")
	}, csitest.Without("PUBLISH_READONLY"))
}
