package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/e2e/control"
	"github.com/csiemu/csiemu/e2e/process"
)

const (
	// volumes is how many are attached and detached at once, nodeCount to how many nodes.
	volumes   = 8
	nodeCount = 3
	// stormFaults has calls that take a while, so that restarts come upon them, and
	// replies that are lost.
	stormFaults = "ControllerPublishVolume: 30%sleep(200ms)\nControllerUnpublishVolume: 30%sleep(200ms)\n" +
		"ControllerPublishVolume: 3%drop\nControllerUnpublishVolume: 3%drop\n"
)

func nodeOf(i int) string { return fmt.Sprintf("node-%d", i%nodeCount) }

// storm is an attacher, a driver and an API server that are killed and come back,
// and those who attach and detach meanwhile.
type storm struct {
	*testing.T
	ctx                                     context.Context
	plane                                   *control.Plane
	csiemu, dir, logs, endpoint, kubeconfig string
	seed                                    uint64
	attacher, driver                        *process.Process
	conn                                    *grpc.ClientConn
	handles                                 [volumes]string
	restarted                               map[string]int
	done, early                             atomic.Int64
	// progress tells that a cycle has ended, broken that one has failed.
	progress chan struct{}
	broken   atomic.Bool
}

func newStorm(ctx context.Context, t *testing.T, plane *control.Plane, dir string, seed uint64) *storm {
	w := &storm{
		T: t, ctx: ctx, plane: plane, csiemu: buildCSIEmu(t), dir: dir, logs: t.TempDir(), endpoint: "unix://" + filepath.Join(dir, "csi.sock"),
		kubeconfig: kubeconfigOf(t, plane, "", rightsAccount), seed: seed, restarted: map[string]int{}, progress: make(chan struct{}, 1),
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "faults"), []byte(stormFaults), 0o600))
	w.driver = w.start("driver", w.driverFlags()...)
	var err error
	w.conn, err = grpc.NewClient(w.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	for i := range nodeCount {
		_, err := plane.Client.StorageV1().CSINodes().Create(ctx, &storage.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: nodeOf(i)},
			Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: rightsDriver, NodeID: nodeOf(i)}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range volumes {
		w.volume(i)
	}
	w.attacher = w.start("attacher", w.attacherFlags()...)
	return w
}

func pvOf(i int) string { return fmt.Sprintf("storm-%d", i) }

// volume makes a volume and its object.
func (w *storm) volume(i int) {
	reply, err := csi.NewControllerClient(w.conn).CreateVolume(w.ctx, &csi.CreateVolumeRequest{
		Name: pvOf(i), CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}, grpc.WaitForReady(true))
	require.NoError(w, err)
	w.handles[i] = reply.GetVolume().GetVolumeId()
	_, err = w.plane.Client.CoreV1().PersistentVolumes().Create(w.ctx, &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pvOf(i)},
		Spec: core.PersistentVolumeSpec{
			StorageClassName: "none", Capacity: storageOf(1), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: rightsDriver, VolumeHandle: w.handles[i], VolumeAttributes: reply.GetVolume().GetVolumeContext(),
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}

// cycle attaches a volume to a node and detaches it. Some attachments are deleted
// before they are made. It reports whether all was right.
func (w *storm) cycle(i int, random *rand.Rand) bool {
	// The name is always that of the volume: names are used again.
	name, node := pvOf(i), nodeOf(random.IntN(nodeCount))
	ok := w.make(name, node)
	if random.IntN(4) == 0 {
		ok = ok && w.pass(time.Duration(random.IntN(300))*time.Millisecond)
		w.early.Add(1)
	} else {
		ok = ok && w.attached(name) && w.isOn(i, node)
	}
	ok = ok && w.remove(name) && w.isOn(i)
	if !ok {
		w.broken.Store(true)
	}
	w.done.Add(1)
	select {
	case w.progress <- struct{}{}:
	default:
	}
	return ok
}

// make makes a VolumeAttachment. One that an API server made before it was killed
// counts too.
func (w *storm) make(name, node string) bool {
	return w.eventually("make VolumeAttachment "+name, func() (bool, error) {
		_, err := w.plane.Client.StorageV1().VolumeAttachments().Create(w.ctx, &storage.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storage.VolumeAttachmentSpec{
				Attacher: rightsDriver, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name},
			},
		}, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
}

func (w *storm) attached(name string) bool {
	return w.eventually("attach "+name, func() (bool, error) {
		va, err := w.plane.Client.StorageV1().VolumeAttachments().Get(w.ctx, name, metav1.GetOptions{})
		if err == nil && va.Status.AttachError != nil {
			err = fmt.Errorf("its attachError is %q", va.Status.AttachError.Message)
		}
		return va != nil && va.Status.Attached, err
	})
}

// remove deletes a VolumeAttachment and waits until it is gone.
func (w *storm) remove(name string) bool {
	attachments := w.plane.Client.StorageV1().VolumeAttachments()
	return w.eventually("detach "+name, func() (bool, error) {
		va, err := attachments.Get(w.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil && va.DeletionTimestamp == nil {
			err = attachments.Delete(w.ctx, name, metav1.DeleteOptions{})
		}
		if err == nil && va.Status.DetachError != nil {
			err = fmt.Errorf("its detachError is %q", va.Status.DetachError.Message)
		}
		return false, err
	})
}

// isOn asserts on which nodes a volume is, as the driver has it.
func (w *storm) isOn(i int, want ...string) bool {
	var nodes []string
	got := w.eventually("list volumes", func() (bool, error) {
		reply, err := csi.NewControllerClient(w.conn).ListVolumes(w.ctx, &csi.ListVolumesRequest{}, grpc.WaitForReady(true))
		for _, e := range reply.GetEntries() {
			if e.GetVolume().GetVolumeId() == w.handles[i] {
				nodes = e.GetStatus().GetPublishedNodeIds()
				return true, nil
			}
		}
		if status.Code(err) == codes.OK {
			err = fmt.Errorf("volume %s is not among %d", w.handles[i], len(reply.GetEntries()))
		}
		return false, err
	})
	if got && !slices.Equal(nodes, want) {
		w.Errorf("volume %s of %s is published to %q, want %q", w.handles[i], pvOf(i), nodes, want)
	}
	return got && slices.Equal(nodes, want)
}

// eventually tries until it is so: whatever it needs may be away.
func (w *storm) eventually(what string, so func() (bool, error)) bool {
	again := time.NewTicker(25 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := so()
		if ok {
			return true
		}
		select {
		case <-again.C:
		case <-w.ctx.Done():
			w.Errorf("%s: %v: %v", what, w.ctx.Err(), err)
			return false
		}
	}
}

// reach waits until so many cycles have ended.
func (w *storm) reach(cycles int64) bool {
	for w.done.Load() < cycles && !w.broken.Load() {
		select {
		case <-w.progress:
		case <-w.ctx.Done():
			return false
		}
	}
	return !w.broken.Load()
}

// pass lets time pass.
func (w *storm) pass(t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-w.ctx.Done():
		return false
	}
}

// require ends the test at an error of its own means.
func (w *storm) require(err error) {
	w.Helper()
	require.NoError(w, err)
}

// calm attaches every volume once more, to be seen where it was asked for, and then
// ends them all: no finalizer keeps anything.
func (w *storm) calm() {
	if w.Failed() {
		return
	}
	for i := range volumes {
		require.True(w, w.make(pvOf(i), nodeOf(i)))
	}
	for i := range volumes {
		require.True(w, w.attached(pvOf(i)))
	}
	for i := range volumes {
		require.True(w, w.isOn(i, nodeOf(i)))
		require.True(w, w.remove(pvOf(i)))
	}
	for i := range volumes {
		require.True(w, w.isOn(i))
		name := pvOf(i)
		require.NoError(w, w.plane.Client.CoreV1().PersistentVolumes().Delete(w.ctx, name, metav1.DeleteOptions{}))
		require.True(w, w.eventually("end PersistentVolume "+name, func() (bool, error) {
			pv, err := w.plane.Client.CoreV1().PersistentVolumes().Get(w.ctx, name, metav1.GetOptions{})
			if err == nil {
				err = fmt.Errorf("its finalizers are %q", pv.Finalizers)
			}
			return apierrors.IsNotFound(err), err
		}))
	}
	left, err := w.plane.Client.StorageV1().VolumeAttachments().List(w.ctx, metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, left.Items)
}

// close ends the programs.
func (w *storm) close() {
	if w.Failed() {
		w.Logf("the end of the log of the attacher: %s", w.attacher.Tail())
		w.Logf("the end of the log of the driver: %s", w.driver.Tail())
	}
	require.NoError(w, w.attacher.Stop())
	require.NoError(w, w.driver.Stop())
	require.NoError(w, w.conn.Close())
}
