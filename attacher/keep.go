package attacher

import (
	"errors"
	"fmt"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// keeper makes what the caches keep of objects.
type keeper struct {
	driver     string
	finalizer  string
	translator csitrans.CSITranslator
	log        klog.Logger
}

// keep turns an object into an attachment, volume or node, or into a foreign one if
// it has nothing to do with this driver.
func (k *keeper) keep(object runtime.Object) any {
	switch o := object.(type) {
	case *storagev1.VolumeAttachment:
		return k.attachment(o)
	case *corev1.PersistentVolume:
		return k.volume(o)
	case *storagev1.CSINode:
		return k.node(o)
	}
	return object
}

func (k *keeper) attachment(o *storagev1.VolumeAttachment) any {
	is := identity{o.Name, o.ResourceVersion}
	if o.Spec.Attacher != k.driver {
		return &foreign{is}
	}
	a := &attachment{
		identity: is, uid: string(o.UID), node: unique.Make(o.Spec.NodeName), finalizers: newList(o.Finalizers),
		deleting: o.DeletionTimestamp != nil, attached: o.Status.Attached,
		nodeID: o.Annotations[nodeIDAnnotation], handle: o.Annotations[handleAnnotation],
		attachError: errorDigest(o.Status.AttachError), detachError: errorDigest(o.Status.DetachError),
		others: digestAll([]string{nodeIDAnnotation, handleAnnotation}, o.Labels, o.Annotations),
		since:  unixOr(o.DeletionTimestamp, o.CreationTimestamp.Time),
	}
	a.finalized = a.finalizers.has(k.finalizer)
	if o.Spec.Source.PersistentVolumeName != nil {
		a.hasPV, a.pv = true, *o.Spec.Source.PersistentVolumeName
	}
	if inline := o.Spec.Source.InlineVolumeSpec; inline != nil {
		a.hasInline = true
		if inline.CSI != nil {
			a.inline, _ = trimmed(inline) // what was read can be written
		}
	}
	return a
}

func (k *keeper) volume(o *corev1.PersistentVolume) any {
	v := k.wholeVolume(o)
	if v.driver.Value() != k.driver && !v.finalizers.has(k.finalizer) {
		return &foreign{v.identity}
	}
	return v
}

// wholeVolume is a volume of any driver.
func (k *keeper) wholeVolume(o *corev1.PersistentVolume) *volume {
	v := &volume{
		identity: identity{o.Name, o.ResourceVersion}, finalizers: newList(o.Finalizers), deleting: o.DeletionTimestamp != nil,
		inTree: k.translator.IsPVMigratable(o), migratedTo: unique.Make(o.Annotations[migratedAnnotation]),
	}
	spec := &o.Spec
	if v.inTree {
		translated, err := k.translator.TranslateInTreePVToCSI(k.log, o)
		if err != nil {
			v.wrong = fmt.Errorf("translate in-tree PersistentVolume %q to CSI: %w", o.Name, err)
			v.driver = unique.Make("")
			return v
		}
		spec = &translated.Spec
	}
	if spec.CSI == nil {
		v.wrong = fmt.Errorf("PersistentVolume %q has a source that is not of CSI and was not migrated", o.Name)
		v.driver = unique.Make("")
	} else {
		v.driver = unique.Make(spec.CSI.Driver)
	}
	if v.wrong == nil {
		v.spec, v.wrong = trimmed(spec)
	}
	return v
}

func (k *keeper) node(o *storagev1.CSINode) any {
	is := identity{o.Name, o.ResourceVersion}
	for _, d := range o.Spec.Drivers {
		if d.Name == k.driver {
			return &node{is, d.NodeID}
		}
	}
	return &foreign{is}
}

var errNoCSI = errors.New("the inline volume has no CSI source")

// unpack reads what trimmed wrote.
func (k *keeper) unpack(wire []byte) (*corev1.PersistentVolumeSpec, error) {
	var spec corev1.PersistentVolumeSpec
	if err := spec.Unmarshal(wire); err != nil {
		return nil, fmt.Errorf("read a kept specification: %w", err)
	}
	if spec.CSI == nil {
		return nil, errNoCSI
	}
	spec.CSI.Driver = k.driver
	return &spec, nil
}
