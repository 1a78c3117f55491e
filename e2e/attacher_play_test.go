package e2e_test

import (
	"fmt"
	"hash/fnv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csiemu/csiemu/journal"
)

// play is a scenario that takes place: objects of one name, and a volume.
type play struct {
	stage
	scenario     scenario
	mine, strict bool
	handle       string
	// pv and va are made; a nil pv is not. dying marks pv for deletion first.
	pv    *core.PersistentVolume
	va    *storage.VolumeAttachment
	dying bool
}

// object is the name of the objects.
func (s scenario) object(c contestant) string {
	sum := fnv.New32a()
	fmt.Fprint(sum, c.name, s.name)
	return fmt.Sprintf("a%08x", sum.Sum32())
}

func (p *play) play() {
	p.objects()
	if p.scenario.prepare != nil {
		p.scenario.prepare(p)
	}
	for _, fault := range p.scenario.faults {
		p.double.Inject(p.only(fault))
	}
	p.node()
	if p.pv != nil {
		_, err := p.client.CoreV1().PersistentVolumes().Create(p.ctx, p.pv, metav1.CreateOptions{})
		require.NoError(p, err)
	}
	if p.dying {
		require.NoError(p, p.client.CoreV1().PersistentVolumes().Delete(p.ctx, p.name, metav1.DeleteOptions{}))
	}
	_, err := p.client.StorageV1().VolumeAttachments().Create(p.ctx, p.va, metav1.CreateOptions{})
	require.NoError(p, err)
	if p.scenario.run != nil {
		p.scenario.run(p)
	} else {
		p.attached()
		p.check()
		p.detach()
	}
	p.end()
}

// only has a fault strike the volume of this play.
func (p *play) only(fault string) string {
	at := len("ControllerPublishVolume")
	if fault[:at] != "ControllerPublishVolume" {
		at = len("ControllerUnpublishVolume")
	}
	return fault[:at] + "{volume=" + p.handle + "}" + fault[at:]
}

// objects are a volume, its object, and what asks for it to be attached.
func (p *play) objects() {
	var capabilities []*csi.VolumeCapability
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER} {
		capabilities = append(capabilities, &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}, AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		}, &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}, AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		})
	}
	reply, err := p.double.Controller().CreateVolume(p.ctx, &csi.CreateVolumeRequest{
		Name: p.name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: capabilities,
	})
	require.NoError(p, err)
	p.handle = reply.GetVolume().GetVolumeId()
	p.pv = &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: core.PersistentVolumeSpec{
			StorageClassName: "none", Capacity: storageOf(1), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: p.driver, VolumeHandle: p.handle, VolumeAttributes: map[string]string{"attribute": "of a test"}, FSType: "ext4",
			}},
		},
	}
	p.va = &storage.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: storage.VolumeAttachmentSpec{
			Attacher: p.driver, NodeName: p.name, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &p.name},
		},
	}
}

// check asserts what is the same for both on an attached VolumeAttachment.
func (p *play) check() {
	va := p.now()
	require.True(p, va.Status.Attached)
	if p.mine {
		// Theirs makes its patch from a cache that may not have the error yet.
		require.Nil(p, va.Status.AttachError)
	}
	require.NotEmpty(p, va.Status.AttachmentMetadata)
	require.Contains(p, va.Finalizers, "external-attacher/loop-csiemu-dev")
	require.Equal(p, p.double.Nodes()[0].Name, va.Annotations["csi.alpha.kubernetes.io/node-id"])
	if p.pv != nil {
		pv, err := p.client.CoreV1().PersistentVolumes().Get(p.ctx, p.name, metav1.GetOptions{})
		require.NoError(p, err)
		require.Contains(p, pv.Finalizers, "external-attacher/loop-csiemu-dev")
	}
}

// end removes what is left, which must be little.
func (p *play) end() {
	_, err := p.client.StorageV1().VolumeAttachments().Get(p.ctx, p.name, metav1.GetOptions{})
	require.True(p, apierrors.IsNotFound(err), "the VolumeAttachment is there: %v", err)
	volumes := p.client.CoreV1().PersistentVolumes()
	if p.dying {
		p.forceVolume()
	} else if _, err := volumes.Get(p.ctx, p.name, metav1.GetOptions{}); err == nil {
		gone := untilGone[*core.PersistentVolume](&p.stage, volumes.Watch, p.name)
		require.NoError(p, volumes.Delete(p.ctx, p.name, metav1.DeleteOptions{}))
		gone() // no finalizer of the attacher stays
	}
	attached := 0
	for _, a := range p.double.Attachments() {
		if a.Volume == p.handle {
			attached++
		}
	}
	if p.scenario.leaks && (!p.mine || p.strict) {
		require.Equal(p, 1, attached)
	} else {
		require.Zero(p, attached, "the volume is still attached")
	}
}

// now is the VolumeAttachment as it is.
func (p *play) now() *storage.VolumeAttachment {
	va, err := p.client.StorageV1().VolumeAttachments().Get(p.ctx, p.name, metav1.GetOptions{})
	require.NoError(p, err)
	return va
}

func (p *play) until(reached func(*storage.VolumeAttachment) bool) {
	p.Helper()
	until(&p.stage, p.client.StorageV1().VolumeAttachments().Watch, p.name, reached)
}

// remove marks the VolumeAttachment for deletion.
func (p *play) remove() {
	require.NoError(p, p.client.StorageV1().VolumeAttachments().Delete(p.ctx, p.name, metav1.DeleteOptions{}))
}

// awaitGone waits until the VolumeAttachment that was removed is gone.
func (p *play) awaitGone() {
	w := p.watch(p.client.StorageV1().VolumeAttachments().Watch, p.name)
	defer w.Stop()
	if _, err := p.client.StorageV1().VolumeAttachments().Get(p.ctx, p.name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return
	}
	for next(&p.stage, w, p.name).Type != "DELETED" {
	}
}

var noFinalizers = []byte(`{"metadata":{"finalizers":null}}`)

// force takes all finalizers from the VolumeAttachment.
func (p *play) force() {
	_, err := p.client.StorageV1().VolumeAttachments().Patch(p.ctx, p.name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
	require.NoError(p, err)
	p.awaitGone()
}

// forceVolume has the PersistentVolume vanish in spite of its finalizers.
func (p *play) forceVolume() {
	volumes := p.client.CoreV1().PersistentVolumes()
	gone := untilGone[*core.PersistentVolume](&p.stage, volumes.Watch, p.name)
	require.NoError(p, volumes.Delete(p.ctx, p.name, metav1.DeleteOptions{}))
	_, err := volumes.Patch(p.ctx, p.name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
	require.NoError(p, err)
	gone()
}

// unpublish detaches behind the attacher's back.
func (p *play) unpublish() {
	_, err := p.double.Controller().ControllerUnpublishVolume(p.ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: p.handle, NodeId: p.double.Nodes()[0].Name,
	})
	require.NoError(p, err)
}

// calledAgain waits until the volume is published once more.
func (p *play) calledAgain() {
	match, err := journal.ParseMatch("ControllerPublishVolume{volume=" + p.handle + ",code=OK}")
	require.NoError(p, err)
	before := 0
	for _, e := range p.double.Journal().Entries(0) {
		if e.Done && match.Matches(e) {
			before++
		}
	}
	p.wait(before+1, match.String())
}
