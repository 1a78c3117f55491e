package attacher

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// The caches keep less than a fifth of each object. What many objects share, such
// as a node's name or a list of finalizers, is one string for all.

// word is a string that many objects share.
type word = unique.Handle[string]

// list is a list of names that many objects share.
type list struct{ word }

func newList(names []string) list { return list{unique.Make(strings.Join(names, "\n"))} }

func (l list) names() []string {
	if l.Value() == "" {
		return nil
	}
	return strings.Split(l.Value(), "\n")
}

func (l list) has(name string) bool { return slices.Contains(l.names(), name) }

// identity is what a cache needs of each object.
type identity struct{ name, resourceVersion string }

// GetObjectMeta is metav1.ObjectMetaAccessor, for the caches of client-go.
func (i *identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: i.name, ResourceVersion: i.resourceVersion}
}

// foreign is an object of another driver, or of none.
type foreign struct{ identity }

// attachment is a VolumeAttachment of this driver.
type attachment struct {
	identity
	uid        string
	node       word
	finalizers list
	// pv is the name of the volume; inline is a specification without one, as
	// it is on the wire.
	pv     string
	inline []byte
	// hasPV and hasInline tell what the source has.
	hasPV, hasInline bool
	deleting         bool
	attached         bool
	finalized        bool // whether our finalizer is there
	nodeID, handle   string
	// attachError and detachError are digests of what is recorded, 0 for nothing.
	attachError, detachError uint64
	// others is a digest of the labels and of annotations that are not ours.
	others uint64
	// since is when it was made, or marked for deletion, in Unix seconds.
	since int64
}

func (a *attachment) version() kube.Version {
	return kube.Version{UID: a.uid, ResourceVersion: a.resourceVersion}
}

// wants reports whether there is something to be done by what is recorded.
func (a *attachment) wants() bool {
	if a.deleting {
		return a.finalized
	}
	return !a.attached
}

// stirs reports whether a change is one to act upon now. What only this role
// writes is not: an error that it has just recorded, for example, would end the
// wait before the next attempt. A label or an annotation of somebody else is: to
// touch an object is how people have it tried again.
func (a *attachment) stirs(old *attachment) bool {
	return a.uid != old.uid || a.deleting != old.deleting || a.others != old.others || (old.attached && !a.attached) ||
		a.node != old.node || a.pv != old.pv || !bytes.Equal(a.inline, old.inline)
}

// volume is a PersistentVolume of this driver.
type volume struct {
	identity
	driver     word
	finalizers list
	deleting   bool
	// inTree says that it is one of a plugin that was part of Kubernetes, and
	// migratedTo which driver it was migrated to.
	inTree     bool
	migratedTo word
	// spec is what a call of the driver needs, as it is on the wire; wrong is why
	// there is none.
	spec  []byte
	wrong error
}

func (v *volume) version() kube.Version { return kube.Version{ResourceVersion: v.resourceVersion} }

// node is a CSINode that has this driver.
type node struct {
	identity
	id string
}

var seed = maphash.MakeSeed()

// digest is a digest of a text, never 0.
func digest(text string) uint64 { return maphash.String(seed, text) | 1 }

// digestAll is a digest of maps, but for some keys.
func digestAll(without []string, maps ...map[string]string) uint64 {
	var sum uint64
	for i, m := range maps {
		for key, value := range m {
			if !slices.Contains(without, key) {
				sum += digest(string(rune('0'+i)) + key + "\x00" + value) // in any order
			}
		}
	}
	return sum
}

// errorDigest is the digest of an error as it is recorded.
func errorDigest(e *storagev1.VolumeError) uint64 {
	if e == nil {
		return 0
	}
	code := ""
	if e.ErrorCode != nil {
		code = string(rune(*e.ErrorCode))
	}
	return digest(code + "\x00" + e.Message)
}

// trimmed is what a call of the driver needs of a specification, on the wire.
func trimmed(s *corev1.PersistentVolumeSpec) ([]byte, error) {
	source := *s.CSI
	source.Driver = ""
	source.NodeStageSecretRef, source.NodePublishSecretRef = nil, nil
	source.ControllerExpandSecretRef, source.NodeExpandSecretRef = nil, nil
	spec := corev1.PersistentVolumeSpec{AccessModes: s.AccessModes, MountOptions: s.MountOptions, VolumeMode: s.VolumeMode}
	spec.CSI = &source
	return spec.Marshal()
}

// unixOr is a time in seconds, or another one's.
func unixOr(first *metav1.Time, second time.Time) int64 {
	if first != nil {
		return first.Unix()
	}
	return second.Unix()
}
