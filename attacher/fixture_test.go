package attacher_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

// Names of the objects that each test begins with.
const (
	driverName = "memory.csiemu.dev"
	finalizer  = "external-attacher/memory-csiemu-dev"
	nodeID     = "node-1"
	vaName     = "va"
	pvName     = "pv"
	annotation = "csi.alpha.kubernetes.io/node-id"
	handleNote = "csiemu.dev/volume-handle"
)

// fixture is an attacher between an API server and a driver, both in memory, with a
// clock of its own.
type fixture struct {
	*testing.T
	server *kubetest.Server
	double *csitest.Double
	config attacher.Config
	// handle is the volume's.
	handle string
	// intercept is called before each request of the attacher, if it is set.
	intercept atomic.Pointer[func(context.Context, kubetest.Request) *apierrors.StatusError]

	stop context.CancelFunc
	done chan error
}

// run runs a test inside a bubble of synctest.
func run(t *testing.T, test func(*fixture), options ...csitest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: kubetest.New(), double: csitest.New(t, options...)}
		f.server.Intercept = func(ctx context.Context, r kubetest.Request) *apierrors.StatusError {
			if intercept := f.intercept.Load(); intercept != nil {
				return (*intercept)(ctx, r)
			}
			return nil
		}
		f.config = attacher.Config{
			Client: f.server.Client(), Conn: f.double.Conn(), ReconcilePeriod: -1, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}
		f.handle = f.volume("volume")
		f.server.Put(pvOf(pvName, f.handle))
		f.server.Put(csiNode(nodeID))
		defer f.end()
		test(f)
	})
}

// volume makes a volume of the driver.
func (f *fixture) volume(name string) (handle string) {
	f.Helper()
	reply, err := f.double.Controller().CreateVolume(f.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		}},
	})
	require.NoError(f, err)
	return reply.GetVolume().GetVolumeId()
}

// start runs the attacher, and waits until it waits.
func (f *fixture) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.stop, f.done = cancel, make(chan error, 1)
	go func() { f.done <- attacher.Run(ctx, f.config) }()
	f.settle()
}

// settle waits until nothing is left to be done at this moment.
func (f *fixture) settle() {
	synctest.Wait()
	f.pass(time.Nanosecond) // what is due at once
}

// pass lets time pass.
func (f *fixture) pass(t time.Duration) {
	<-time.After(t)
	synctest.Wait()
}

// end ends the attacher. A goroutine that is left fails the bubble.
func (f *fixture) end() {
	if f.stop != nil {
		f.stop()
		require.NoError(f, <-f.done)
		f.stop = nil
	}
	f.pass(time.Minute) // tickers of queues see the end at their next tick
}

// onRequest sets what is called before each request.
func (f *fixture) onRequest(intercept func(context.Context, kubetest.Request) *apierrors.StatusError) {
	f.intercept.Store(&intercept)
}

// refuse has the server refuse the next n requests like this one, as in
// "patch volumeattachments/va/status".
func (f *fixture) refuse(n int32, request string) {
	var left atomic.Int32
	left.Store(n)
	f.onRequest(func(_ context.Context, r kubetest.Request) *apierrors.StatusError {
		if r.String() == request && left.Add(-1) >= 0 {
			return apierrors.NewForbidden(corev1.Resource(r.Resource), r.Name, nil)
		}
		return nil
	})
}

// writes are the writes so far, in words.
func (f *fixture) writes() (all []string) {
	for _, w := range f.server.Writes() {
		all = append(all, w.String())
	}
	return all
}

func (f *fixture) va() *storagev1.VolumeAttachment {
	f.Helper()
	var va storagev1.VolumeAttachment
	require.True(f, f.server.Get("volumeattachments", "", vaName, &va), "the VolumeAttachment is gone")
	return &va
}

func (f *fixture) gone() bool {
	var va storagev1.VolumeAttachment
	return !f.server.Get("volumeattachments", "", vaName, &va)
}

func (f *fixture) pv() *corev1.PersistentVolume {
	f.Helper()
	var pv corev1.PersistentVolume
	require.True(f, f.server.Get("persistentvolumes", "", pvName, &pv), "the PersistentVolume is gone")
	return &pv
}

// put makes an object with an edit.
func put[T interface {
	metav1.Object
	comparable
}](object T, edit func(T)) T {
	edit(object)
	return object
}

func pvOf(name, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle},
			},
		},
	}
}

func vaOf(name, pv string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: nodeID, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		},
	}
}

func csiNode(id string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: id}}},
	}
}

func secretOf(values map[string]string) *corev1.Secret {
	data := map[string][]byte{}
	for key, value := range values {
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "secret"}, Data: data}
}
