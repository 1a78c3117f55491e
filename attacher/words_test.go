package attacher_test

import (
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attached asserts that the attachment is whole: recorded, protected, and there.
func (f *fixture) attached() {
	f.Helper()
	va := f.va()
	require.True(f, va.Status.Attached, "not attached: %+v", va.Status.AttachError)
	require.Contains(f, va.Finalizers, finalizer)
	require.Equal(f, nodeID, va.Annotations[annotation])
	if va.Spec.Source.PersistentVolumeName != nil && *va.Spec.Source.PersistentVolumeName == pvName {
		require.Contains(f, f.pv().Finalizers, finalizer)
	}
	require.Len(f, f.double.Attachments(), 1)
}

// secretsOf are the secrets of the last call of a method.
func (f *fixture) secretsOf(method string) (secrets map[string]string) {
	for _, e := range f.double.Journal().Entries(0) {
		if r, has := e.Request.(interface{ GetSecrets() map[string]string }); has && e.Method == method {
			secrets = r.GetSecrets()
		}
	}
	return secrets
}

func withSecret(pv *corev1.PersistentVolume) {
	pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "secret"}
}

func inlineVA(handle string) *storagev1.VolumeAttachment {
	pv := pvOf("", handle)
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: vaName},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: nodeID, Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &pv.Spec},
		},
	}
}

// capabilityOf is that of the last publication.
func (f *fixture) capabilityOf() (capability *csi.VolumeCapability) {
	for _, e := range f.double.Journal().Entries(0) {
		if r, is := e.Request.(*csi.ControllerPublishVolumeRequest); is {
			capability = r.GetVolumeCapability()
		}
	}
	return capability
}

// contains reports whether a text has all parts, in the form of JSON or not.
func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), part) {
			return false
		}
	}
	return true
}
