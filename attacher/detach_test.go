package attacher_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
)

const unpublished = "ControllerUnpublishVolume{code=OK}"

// detaching attaches, lets a test prepare, and deletes the VolumeAttachment.
func detaching(f *fixture, va *storagev1.VolumeAttachment, prepare func(f *fixture)) (writes []string) {
	f.server.Put(va)
	f.start()
	f.attached()
	before := len(f.writes())
	prepare(f)
	f.server.Delete("volumeattachments", "", vaName)
	f.settle()
	return f.writes()[before:]
}

func nothing(*fixture) {}

func TestDetach(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(f *fixture){
		"with one write": func(f *fixture) {
			require.Equal(f, []string{"patch volumeattachments/va"}, detaching(f, vaOf(vaName, pvName), nothing))
		},
		"with two writes where others hold it": func(f *fixture) {
			va := put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"other/one"} })
			require.Equal(f, []string{"patch volumeattachments/va", "patch volumeattachments/va/status"}, detaching(f, va, nothing))
			require.Equal(f, []string{"other/one"}, f.va().Finalizers)
			require.Equal(f, storagev1.VolumeAttachmentStatus{}, f.va().Status)
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) { delete(va["metadata"].(map[string]any), "finalizers") })
		},
		"an inline volume": func(f *fixture) { detaching(f, inlineVA(f.handle), nothing) },
		"with secrets": func(f *fixture) {
			f.server.Put(secretOf(map[string]string{"user": "u"}))
			f.server.Put(put(pvOf(pvName, f.handle), withSecret))
			detaching(f, vaOf(vaName, pvName), func(f *fixture) {
				f.server.Put(secretOf(map[string]string{"user": "u", "password": "new"}))
			})
			require.Len(f, f.secretsOf("ControllerUnpublishVolume"), 2, "secrets are read anew")
		},
		"with empty secrets": func(f *fixture) {
			f.server.Put(secretOf(nil))
			f.server.Put(put(pvOf(pvName, f.handle), withSecret))
			detaching(f, vaOf(vaName, pvName), nothing)
		},
		"the CSINode is gone": func(f *fixture) {
			detaching(f, vaOf(vaName, pvName), func(f *fixture) { f.server.Delete("csinodes", "", nodeID) })
		},
		"the driver is gone from the CSINode": func(f *fixture) {
			detaching(f, vaOf(vaName, pvName), func(f *fixture) {
				f.server.Edit("csinodes", "", nodeID, func(n map[string]any) { n["spec"] = map[string]any{"drivers": nil} })
			})
		},
		"the volume is gone": func(f *fixture) {
			detaching(f, vaOf(vaName, pvName), takeVolume)
		},
		"deleted while the driver attaches": func(f *fixture) {
			f.double.Inject("ControllerPublishVolume: 1*sleep(5s)->ok")
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.server.Delete("volumeattachments", "", vaName)
			f.settle()
			f.double.Journal().Never(f, "ControllerUnpublishVolume")
			f.pass(6 * time.Second)
			f.double.Journal().Want(f, published, unpublished)
		},
		"after an attach that failed finally": func(f *fixture) {
			f.double.Inject("ControllerPublishVolume: return(INVALID_ARGUMENT)")
			f.server.Put(vaOf(vaName, pvName))
			f.start()
			f.server.Delete("volumeattachments", "", vaName)
			f.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				test(f)
				f.pass(time.Minute)
				require.True(f, f.gone())
				require.Empty(f, f.double.Attachments())
				f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
			})
		})
	}
}

// takeVolume has the PersistentVolume vanish in spite of its finalizers.
func takeVolume(f *fixture) {
	f.server.Edit("persistentvolumes", "", pvName, func(pv map[string]any) {
		metadata := pv["metadata"].(map[string]any)
		delete(metadata, "finalizers")
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	})
	f.settle()
}

func TestDetachIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(f *fixture)
		message string
		calls   int
	}{
		"the driver fails": {
			prepare: func(f *fixture) { f.double.Inject("ControllerUnpublishVolume: 2*return(INTERNAL)->ok") },
			message: "Internal", calls: 3,
		},
		"the driver says that it is not found": {
			prepare: func(f *fixture) { f.double.Inject("ControllerUnpublishVolume: 1*return(NOT_FOUND)->ok") },
			message: "NotFound", calls: 2,
		},
		"the driver takes too long": {
			prepare: func(f *fixture) { f.double.Inject("ControllerUnpublishVolume: 1*hang->ok") },
			message: "DeadlineExceeded", calls: 2,
		},
		"missing secrets": {
			prepare: func(f *fixture) {
				f.server.Put(put(f.pv(), withSecret))
				f.settle()
				time.AfterFunc(2*time.Second, func() { f.server.Put(secretOf(nil)) })
			},
			message: `load secret "ns/secret"`, calls: 1,
		},
		"the finalizer cannot be removed": {
			prepare: func(f *fixture) { f.refuse(1, "patch volumeattachments/va") },
			message: "mark as detached", calls: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				detaching(f, vaOf(vaName, pvName), test.prepare)
				f.pass(15500 * time.Millisecond) // the limit of a call, and no retry
				if !f.gone() {
					require.Contains(f, f.va().Status.DetachError.Message, test.message)
				}
				require.Condition(f, func() bool {
					for _, w := range f.server.Writes() {
						if w.Subresource == "status" && contains(w.Body, "detachError", test.message) {
							return true
						}
					}
					return false
				}, "the failure was recorded")
				f.pass(time.Minute)
				require.True(f, f.gone())
				f.double.Journal().WantCount(f, test.calls, "ControllerUnpublishVolume")
			})
		})
	}
}

func TestDetachThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		va      *storagev1.VolumeAttachment
		prepare func(f *fixture)
		message string
	}{
		"neither source": {
			va:      put(vaOf(vaName, ""), func(va *storagev1.VolumeAttachment) { va.Spec.Source = storagev1.VolumeAttachmentSource{} }),
			message: "neither inlineVolumeSpec nor persistentVolumeName",
		},
		"both sources": {
			va:      put(inlineVA("h"), func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = new(pvName) }),
			message: "both inlineVolumeSpec and persistentVolumeName",
		},
		"an unknown volume that nothing tells of": {
			va:      vaOf(vaName, "unknown"),
			message: "remove the finalizer external-attacher/memory-csiemu-dev",
		},
		"an unknown node that nothing tells of": {
			va:      put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "unknown" }),
			message: `"unknown" not found`,
		},
		"the error cannot be recorded at first": {
			va:      vaOf(vaName, "unknown"),
			prepare: func(f *fixture) { f.refuse(1, "patch volumeattachments/va/status") },
			message: `"unknown" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				test.va.Finalizers = []string{finalizer}
				test.va.Status.Attached = true
				f.server.Put(test.va)
				f.server.Delete("volumeattachments", "", vaName)
				if test.prepare != nil {
					test.prepare(f)
				}
				f.start()
				f.pass(10 * time.Second)
				require.Contains(f, f.va().Status.DetachError.Message, test.message)
				require.Nil(f, f.va().Status.DetachError.ErrorCode)
				f.double.Journal().Never(f, "ControllerUnpublishVolume")
			})
		})
	}
}

func TestDetachOfWhatIsDetachedAlreadyDoesNothing(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) {
			va.Finalizers = []string{"other/one"}
			va.Status.Attached = true
		}))
		f.server.Delete("volumeattachments", "", vaName)
		f.start()
		require.Empty(f, f.writes())
		f.double.Journal().Never(f, "ControllerUnpublishVolume")
	})
}

func TestDetachFindsTheVolumeByTheNameOfTheVolumeAttachment(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		// As another attacher has left it: without the note of the handle.
		sum := sha256.Sum256([]byte(f.handle + driverName + nodeID))
		name := "csi-" + hex.EncodeToString(sum[:])
		for _, other := range []string{"a", "b", "c"} {
			f.volume(other)
		}
		f.config.MaxEntries = 2
		f.config.Strict = true
		f.server.Put(vaOf(name, pvName))
		f.start()
		require.Len(f, f.double.Attachments(), 1)
		f.end()
		takeVolume(f)
		f.server.Delete("volumeattachments", "", name)

		f.start() // strict: for ever
		f.pass(time.Hour)
		f.double.Journal().Never(f, "ControllerUnpublishVolume")
		f.end()

		f.config.Strict = false
		f.start()
		f.double.Journal().WantCount(f, 1, unpublished)
		require.Empty(f, f.double.Attachments())
	})
}

func TestStrictMakesTheWritesOfExternalAttacher(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.Strict = true
		writes := detaching(f, vaOf(vaName, pvName), nothing)
		require.Equal(f, []string{"patch volumeattachments/va", "patch volumeattachments/va/status"}, writes)
		require.True(f, f.gone())
		require.Equal(f, attachWrites, f.writes()[:3])
		for _, w := range f.server.Writes() {
			require.NotContains(f, w.Body, "csiemu.dev/volume-handle")
		}
	})
}

func TestErrorsAreWrittenOnceUnlessStrict(t *testing.T) {
	t.Parallel()
	for strict, least := range map[bool]int{false: 1, true: 5} {
		t.Run(map[bool]string{false: "once", true: "each time"}[strict], func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.config.Strict = strict
				f.double.Inject("ControllerPublishVolume: return(INVALID_ARGUMENT)")
				f.server.Put(vaOf(vaName, pvName))
				f.start()
				f.pass(time.Minute)
				written := 0
				for _, w := range f.writes() {
					if w == "patch volumeattachments/va/status" {
						written++
					}
				}
				if strict {
					require.GreaterOrEqual(f, written, least)
				} else {
					require.Equal(f, least, written)
				}
			})
		})
	}
}

func TestSecretsAreNotInErrors(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.server.Put(secretOf(map[string]string{"password": "correct-horse-battery"}))
		f.server.Put(put(pvOf(pvName, f.handle), withSecret))
		f.double.Inject(`ControllerPublishVolume: return(UNAUTHENTICATED, "no such password: correct-horse-battery")`)
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		require.Contains(f, f.va().Status.AttachError.Message, "no such password")
		require.NotContains(f, f.va().Status.AttachError.Message, "horse")
		require.EqualValues(f, 16, *f.va().Status.AttachError.ErrorCode)
	})
}
