package e2e_test

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writes of an attach, of a detach and of the end of the volume.
var (
	attachWrites = []string{"PV", "VA", "VA/status"}
	detachWrites = []string{"VA", "VA/status"}
	oneWrite     = []string{"VA"}
	endWrites    = []string{"PV"}
	failedWrite  = []string{"VA/status"}
)

const (
	publish, unpublish = "publish", "unpublish"
	gone               = "one write a detach: the object is gone after the first"
)

// scenarios are what both attachers are held to. Where nothing else is said ours
// does as theirs.
func scenarios() []scenario {
	lifeCalls := []string{publish, unpublish}
	lifeWrites := join(attachWrites, detachWrites, endWrites)
	lifeOurs := join(attachWrites, oneWrite, endWrites)
	life := func(name string, edit func(p *play)) scenario {
		return scenario{name: name, prepare: edit, calls: lifeCalls, writes: lifeWrites, ours: outcomeOf{writes: lifeOurs, why: gone}}
	}
	volume := func(name string, edit func(p *play, pv *core.PersistentVolume)) scenario {
		return life(name, func(p *play) { edit(p, p.pv) })
	}
	return []scenario{
		life("a volume", nil),
		volume("read only", func(_ *play, pv *core.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }),
		volume("attributes, file system and mount options", func(_ *play, pv *core.PersistentVolume) {
			pv.Spec.CSI.VolumeAttributes["more"], pv.Spec.CSI.FSType, pv.Spec.MountOptions = "yes", "xfs", []string{"noatime", "discard"}
		}),
		volume("a block device", func(_ *play, pv *core.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.CSI.FSType = new(core.PersistentVolumeBlock), ""
		}),
		volume("for one pod", func(_ *play, pv *core.PersistentVolume) {
			pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOncePod}
		}),
		volume("secrets", func(p *play, pv *core.PersistentVolume) {
			p.secret()
			pv.Spec.CSI.ControllerPublishSecretRef = &core.SecretReference{Namespace: rightsNamespace, Name: p.name}
		}),
		{
			name: "the finalizer is there already", calls: lifeCalls, writes: join(attachWrites[1:], detachWrites, endWrites),
			ours:    outcomeOf{writes: join(attachWrites[1:], oneWrite, endWrites), why: gone},
			prepare: func(p *play) { p.pv.Finalizers = []string{"external-attacher/loop-csiemu-dev"} },
		},
		{
			name: "an inline volume", calls: lifeCalls, writes: join(attachWrites[1:], detachWrites),
			ours: outcomeOf{writes: join(attachWrites[1:], oneWrite), why: gone},
			prepare: func(p *play) {
				p.va.Spec.Source = storage.VolumeAttachmentSource{InlineVolumeSpec: &p.pv.Spec}
				p.pv.Spec.StorageClassName, p.pv.Spec.Capacity = "", nil
				p.pv = nil
			},
		},
		{
			name: "somebody else's finalizer", calls: lifeCalls, writes: lifeWrites,
			prepare: func(p *play) { p.va.Finalizers = []string{"example.com/other"} },
			run: func(p *play) {
				p.attached()
				p.remove()
				p.until(func(va *storage.VolumeAttachment) bool { return !va.Status.Attached })
				require.Equal(p, []string{"example.com/other"}, p.now().Finalizers)
				p.force()
			},
		},
		{
			name: "the CSINode is gone before the detach", calls: lifeCalls, writes: lifeWrites, ours: outcomeOf{writes: lifeOurs, why: gone},
			run: func(p *play) {
				p.attached()
				require.NoError(p, p.client.StorageV1().CSINodes().Delete(p.ctx, p.name, metav1.DeleteOptions{}))
				p.detach()
			},
		},
		{
			name: "the driver is busy twice", faults: []string{"ControllerPublishVolume: 2*return(UNAVAILABLE)->ok"},
			calls:  []string{publish + " UNAVAILABLE", publish + " UNAVAILABLE", publish, unpublish},
			writes: join(attachWrites[:2], failedWrite, failedWrite, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites[:2], failedWrite, failedWrite, oneWrite, endWrites), why: "an error that stays the same is written once; " + gone + "; it backs off before the second call too"},
		},
		{
			name: "the reply of an attach is lost", faults: []string{"ControllerPublishVolume: drop->ok"},
			calls:  []string{publish + " UNAVAILABLE", publish, unpublish},
			writes: join(attachWrites[:2], failedWrite, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites[:2], failedWrite, failedWrite, oneWrite, endWrites), why: gone + "; it backs off before the second call too"},
		},
		{
			name: "no answer to an attach", faults: []string{"ControllerPublishVolume: 1*hang->ok"},
			calls:  []string{publish + " given up", publish, unpublish},
			writes: join(attachWrites[:2], failedWrite, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites[:2], failedWrite, failedWrite, oneWrite, endWrites), why: gone},
		},
		{
			name: "a detach fails twice", faults: []string{"ControllerUnpublishVolume: 2*return(INTERNAL)->ok"},
			calls:  []string{publish, unpublish + " INTERNAL", unpublish + " INTERNAL", unpublish},
			writes: join(attachWrites, failedWrite, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites, failedWrite, oneWrite, endWrites), why: "an error that stays the same is written once; " + gone},
		},
		{
			name: "NOT_FOUND of a detach is a failure", faults: []string{"ControllerUnpublishVolume: 1*return(NOT_FOUND)->ok"},
			calls:  []string{publish, unpublish + " NOT_FOUND", unpublish},
			writes: join(attachWrites, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites, failedWrite, oneWrite, endWrites), why: gone},
		},
		{
			name: "deleted after an attach that failed finally", faults: []string{"ControllerPublishVolume: return(INVALID_ARGUMENT)"},
			calls:  []string{publish + " INVALID_ARGUMENT", unpublish},
			writes: join(attachWrites[:2], failedWrite, detachWrites, endWrites), repeats: true,
			ours: outcomeOf{writes: join(attachWrites[:2], failedWrite, oneWrite, endWrites), why: gone},
			run: func(p *play) {
				p.until(func(va *storage.VolumeAttachment) bool { return va.Status.AttachError != nil })
				require.EqualValues(p, 3, *p.now().Status.AttachError.ErrorCode)
				p.detach()
			},
		},
		refused("no such volume", "not found", func(p *play) { p.pv = nil }),
		refused("no such node", "not found", func(p *play) { p.va.Spec.NodeName = "unknown" }).with(join(attachWrites[:1], failedWrite, endWrites)),
		refused("access modes that do not go together", "on the same PersistentVolume", func(p *play) {
			p.pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadOnlyMany, core.ReadWriteOnce}
		}).with(join(attachWrites[:1], failedWrite, endWrites)),
		refused("no such secret", "secrets ", func(p *play) {
			p.pv.Spec.CSI.ControllerPublishSecretRef = &core.SecretReference{Namespace: rightsNamespace, Name: "unknown"}
		}).with(join(attachWrites[:1], failedWrite, endWrites)),
		refused("a volume that is being deleted", "is marked for deletion", func(p *play) {
			p.pv.Finalizers, p.dying = []string{"example.com/other"}, true
		}),
		{
			name: "an error longer than the API server takes", faults: []string{`ControllerPublishVolume: 1*return(INTERNAL,"` + strings.Repeat("x", 2000) + `")->ok`},
			calls:  []string{publish + " INTERNAL", publish, unpublish},
			writes: join(attachWrites[:2], failedWrite, failedWrite, detachWrites, endWrites),
			ours:   outcomeOf{writes: join(attachWrites[:2], failedWrite, failedWrite, oneWrite, endWrites), why: "the error is cut to what the API server takes: theirs is refused and nobody reads it; " + gone},
			run: func(p *play) {
				if p.mine {
					p.until(func(va *storage.VolumeAttachment) bool { return va.Status.AttachError != nil || va.Status.Attached })
				}
				p.attached()
				p.detach()
			},
		},
		{
			name: "the PersistentVolume is gone before the detach", calls: []string{publish},
			writes: join(attachWrites, failedWrite), repeats: true, leaks: true,
			ours: outcomeOf{calls: lifeCalls, writes: join(attachWrites, oneWrite), why: "it is detached, by the handle that was noted at the attach (235); --strict is as theirs"},
			run: func(p *play) {
				p.attached()
				p.forceVolume()
				p.remove()
				if p.mine && !p.strict {
					p.awaitGone()
					return
				}
				p.until(func(va *storage.VolumeAttachment) bool { return va.Status.DetachError != nil })
				p.force()
			},
		},
		{
			name: "somebody else detaches it", calls: []string{publish, unpublish, publish, unpublish}, flags: "--reconcile-sync=2s",
			writes: join(attachWrites, failedWrite, detachWrites, endWrites), repeats: true,
			ours: outcomeOf{writes: join(attachWrites, failedWrite, oneWrite, endWrites), why: gone},
			run: func(p *play) {
				p.attached()
				p.unpublish()
				p.calledAgain()
				p.detach()
			},
		},
	}
}

// refused is a scenario of an attach that is not even tried, and can be deleted.
func refused(name, message string, prepare func(p *play)) scenario {
	return scenario{
		name: name, prepare: prepare, writes: failedWrite, repeats: true,
		run: func(p *play) {
			p.until(func(va *storage.VolumeAttachment) bool { return va.Status.AttachError != nil })
			va := p.now()
			require.Contains(p, va.Status.AttachError.Message, message)
			require.Nil(p, va.Status.AttachError.ErrorCode)
			require.Empty(p, va.Finalizers)
			p.detach()
		},
	}
}

// with is the scenario with other writes.
func (s scenario) with(writes []string) scenario { s.writes = writes; return s }

func join(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// secret makes the secret of the volume.
func (p *play) secret() {
	_, err := p.client.CoreV1().Secrets(rightsNamespace).Create(context.WithoutCancel(p.ctx), &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: p.name}, StringData: map[string]string{"user": "u", "password": "p"},
	}, metav1.CreateOptions{})
	require.NoError(p, err)
}
