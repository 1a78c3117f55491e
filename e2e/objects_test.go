package e2e_test

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// namespace is where all claims are; the API server makes it.
const namespace = "default"

// class makes the storage class of the driver, which has the name of the stage.
func (s *stage) class() {
	s.Helper()
	grows := true
	_, err := s.client.StorageV1().StorageClasses().Create(s.ctx, &storage.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Provisioner: s.driver, AllowVolumeExpansion: &grows,
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

func storageOf(gibs int64) core.ResourceList {
	return core.ResourceList{core.ResourceStorage: *resource.NewQuantity(gibs*gib, resource.BinarySI)}
}

// claim makes a claim of so many GiB, for a volume (by the name of its object) or
// for a new one.
func (s *stage) claim(name string, gibs int64, volume string, edits ...func(*core.PersistentVolumeClaim)) {
	s.Helper()
	c := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: core.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, VolumeName: volume,
			AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			Resources:   core.VolumeResourceRequirements{Requests: storageOf(gibs)},
		},
	}
	for _, edit := range edits {
		edit(c)
	}
	_, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Create(s.ctx, c, metav1.CreateOptions{})
	require.NoError(s, err)
}

// bound waits until a claim is bound and returns the name of the volume's object.
func (s *stage) bound(claim string) string {
	s.Helper()
	return s.claimIs(claim, func(c *core.PersistentVolumeClaim) bool { return c.Status.Phase == core.ClaimBound }).Spec.VolumeName
}

// claimIs waits until a claim is as it should be.
func (s *stage) claimIs(name string, reached func(*core.PersistentVolumeClaim) bool) *core.PersistentVolumeClaim {
	s.Helper()
	return until(s, s.client.CoreV1().PersistentVolumeClaims(namespace).Watch, name, reached)
}

// volumeIs waits until the object of a volume is as it should be.
func (s *stage) volumeIs(name string, reached func(*core.PersistentVolume) bool) {
	s.Helper()
	until(s, s.client.CoreV1().PersistentVolumes().Watch, name, reached)
}

// unclaim deletes a claim and waits until it is gone.
func (s *stage) unclaim(name string) {
	s.Helper()
	claims := s.client.CoreV1().PersistentVolumeClaims(namespace)
	gone := untilGone[*core.PersistentVolumeClaim](s, claims.Watch, name)
	require.NoError(s, claims.Delete(s.ctx, name, metav1.DeleteOptions{}))
	gone()
}

// ask changes the size that a claim asks for.
func (s *stage) ask(claim string, gibs int64) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%dGi"}}}}`, gibs)
	_, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Patch(s.ctx, claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s, err)
}

// persistent makes the object, with the name of the stage, of a volume of 1 GiB.
func (s *stage) persistent(v *csi.Volume, edits ...func(*core.PersistentVolume)) {
	s.Helper()
	pv := &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: core.PersistentVolumeSpec{
			StorageClassName: s.name, Capacity: storageOf(1), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: s.driver, VolumeHandle: v.GetVolumeId(), VolumeAttributes: v.GetVolumeContext(), FSType: "ext4",
			}},
		},
	}
	for _, edit := range edits {
		edit(pv)
	}
	_, err := s.client.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{})
	require.NoError(s, err)
}

// node makes what the kubelet would say of the double's node.
func (s *stage) node() {
	s.Helper()
	_, err := s.client.StorageV1().CSINodes().Create(s.ctx, &storage.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: s.driver, NodeID: s.double.Nodes()[0].Name}}},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

// attach asks for the volume of persistent to be attached to the node.
func (s *stage) attach() {
	s.Helper()
	_, err := s.client.StorageV1().VolumeAttachments().Create(s.ctx, &storage.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: storage.VolumeAttachmentSpec{
			Attacher: s.driver, NodeName: s.name, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &s.name},
		},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

// attached waits until it is.
func (s *stage) attached() {
	s.Helper()
	until(s, s.client.StorageV1().VolumeAttachments().Watch, s.name, func(a *storage.VolumeAttachment) bool { return a.Status.Attached })
}

// detach asks for the end of the attachment and waits for it.
func (s *stage) detach() {
	s.Helper()
	attachments := s.client.StorageV1().VolumeAttachments()
	gone := untilGone[*storage.VolumeAttachment](s, attachments.Watch, s.name)
	require.NoError(s, attachments.Delete(s.ctx, s.name, metav1.DeleteOptions{}))
	gone()
}
