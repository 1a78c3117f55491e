package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/journal"
)

// What pods write, and read again.
const (
	dataFile  = "/data/file"
	dataBytes = "10000000"
)

// TestPods runs pods with volumes that csiemu's attacher attaches for a real
// controller manager, and csiemu's registrar has made known to real kubelets.
func TestPods(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	t.Run("what is asked arrives", func(t *testing.T) {
		for name, check := range map[string]func(*stage, *site){
			"block":          (*stage).blockArrives,
			"mount-options":  (*stage).mountOptionsArrive,
			"read-only":      (*stage).readOnlyArrives,
			"read-only-once": (*stage).readOnlyPodArrives,
			"secrets":        (*stage).secretsArrive,
			"one-pod":        (*stage).onePodArrives,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(s.part(t, name), s)
			})
		}
	})
	t.Run("a pod moves with its data", func(t *testing.T) { s.part(t, "moves").moves(s) })
	t.Run("a lost node is fenced", func(t *testing.T) { s.part(t, "fenced").fenced(s) })
}

// on has a pod run on a node.
func on(node string) func(*core.Pod) {
	return func(p *core.Pod) { p.Spec.NodeSelector = map[string]string{core.LabelHostname: node} }
}

// exec runs podprog in a pod.
func (s *stage) exec(at *site, pod string, args ...string) (string, error) {
	return at.cluster.Exec(s.ctx, namespace, pod, append([]string{"/podprog"}, args...)...)
}

// attachment is the VolumeAttachment of the stage's volume.
func (s *stage) attachment() *storage.VolumeAttachment {
	s.Helper()
	all, err := s.client.StorageV1().VolumeAttachments().List(s.ctx, metav1.ListOptions{})
	require.NoError(s, err)
	i := slices.IndexFunc(all.Items, func(a storage.VolumeAttachment) bool {
		return *a.Spec.Source.PersistentVolumeName == s.name
	})
	require.GreaterOrEqual(s, i, 0, "volume %s has no attachment", s.name)
	return &all.Items[i]
}

// unpodDetached deletes a pod and waits until it is gone and its volume detached.
func (s *stage) unpodDetached(pod string) {
	s.Helper()
	gone := untilGone[*storage.VolumeAttachment](s, s.client.StorageV1().VolumeAttachments().Watch, s.attachment().Name)
	s.unpod(pod)
	gone()
}

// moves writes on one node and reads on the other.
func (s *stage) moves(at *site) {
	v := at.create(s.name)
	s.persistent(v)
	s.claim(s.name, 1, s.name)
	s.pod("writer", on("node1"))
	_, err := s.exec(at, "writer", "fill", dataFile, dataBytes, "7")
	require.NoError(s, err)
	require.Equal(s, "node1", s.attachment().Spec.NodeName)
	s.unpodDetached("writer")
	s.pod("reader", on("node2"))
	_, err = s.exec(at, "reader", "verify", dataFile, dataBytes, "7")
	require.NoError(s, err)
	s.unpodDetached("reader")

	var life []string
	for _, e := range at.calls(v.GetVolumeId()) {
		if e.Node != "" && e.Method != "NodeGetVolumeStats" {
			require.Empty(s, e.Findings, "%s", e)
			life = append(life, e.Method+" "+e.Node)
		}
	}
	require.Equal(s, []string{
		"ControllerPublishVolume node1", "NodeStageVolume node1", "NodePublishVolume node1",
		"NodeUnpublishVolume node1", "NodeUnstageVolume node1", "ControllerUnpublishVolume node1",
		"ControllerPublishVolume node2", "NodeStageVolume node2", "NodePublishVolume node2",
		"NodeUnpublishVolume node2", "NodeUnstageVolume node2", "ControllerUnpublishVolume node2",
	}, life)
}

// placed runs a pod of the stage's name on node1, and returns what the array and
// the node were asked for its volume.
func (s *stage) placed(at *site, v *csi.Volume, edits ...func(*core.Pod)) (attach *csi.ControllerPublishVolumeRequest, publish *csi.NodePublishVolumeRequest) {
	s.Helper()
	s.pod(s.name, append(edits, on("node1"))...)
	calls := at.calls(v.GetVolumeId())
	return request[*csi.ControllerPublishVolumeRequest](s, calls, "ControllerPublishVolume"), request[*csi.NodePublishVolumeRequest](s, calls, "NodePublishVolume")
}

func (s *stage) blockArrives(at *site) {
	v := at.create(s.name, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	})
	raw := core.PersistentVolumeBlock
	s.persistent(v, func(p *core.PersistentVolume) { p.Spec.VolumeMode, p.Spec.CSI.FSType = &raw, "" })
	s.claim(s.name, 1, s.name, func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &raw })
	attach, publish := s.placed(at, v, func(p *core.Pod) {
		c := &p.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []core.VolumeDevice{{Name: "data", DevicePath: "/device"}}
	})
	require.NotNil(s, attach.GetVolumeCapability().GetBlock())
	require.NotNil(s, publish.GetVolumeCapability().GetBlock())
	_, err := s.exec(at, s.name, "fill", "/device", dataBytes, "9")
	require.NoError(s, err)
	_, err = s.exec(at, s.name, "verify", "/device", dataBytes, "9")
	require.NoError(s, err)
	s.unpodDetached(s.name)
}

func (s *stage) mountOptionsArrive(at *site) {
	v := at.create(s.name)
	s.persistent(v, func(p *core.PersistentVolume) { p.Spec.MountOptions = []string{"noatime", "commit=17"} })
	s.claim(s.name, 1, s.name)
	attach, publish := s.placed(at, v)
	for _, c := range []*csi.VolumeCapability{attach.GetVolumeCapability(), publish.GetVolumeCapability()} {
		require.Equal(s, []string{"commit=17", "noatime"}, slices.Sorted(slices.Values(c.GetMount().GetMountFlags())))
	}
	mounts, err := s.exec(at, s.name, "read", "/proc/self/mounts")
	require.NoError(s, err)
	i := strings.Index(mounts, " /data ext4 ")
	require.GreaterOrEqual(s, i, 0, mounts)
	line, _, _ := strings.Cut(mounts[i:], "\n")
	require.Contains(s, line, "noatime")
	require.Contains(s, line, "commit=17")
	s.unpodDetached(s.name)
}

// requireReadOnly asserts that a pod cannot write.
func (s *stage) requireReadOnly(at *site) {
	s.Helper()
	_, err := s.exec(at, s.name, "write", dataFile, "x")
	require.ErrorContains(s, err, "read-only file system")
}

// readOnlyArrives has a volume whose object is read-only, after another pod has
// written: what is read-only cannot be formatted.
func (s *stage) readOnlyArrives(at *site) {
	v := at.create(s.name)
	first := at.part(s.T, s.name+"-first")
	first.persistent(v)
	first.claim(first.name, 1, first.name)
	first.pod(first.name, on("node2"))
	_, err := first.exec(at, first.name, "fill", dataFile, dataBytes, "3")
	require.NoError(s, err)
	first.unpodDetached(first.name)

	s.persistent(v, func(p *core.PersistentVolume) {
		p.Spec.CSI.ReadOnly, p.Spec.AccessModes = true, []core.PersistentVolumeAccessMode{core.ReadOnlyMany}
	})
	s.claim(s.name, 1, s.name, func(c *core.PersistentVolumeClaim) {
		c.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadOnlyMany}
	})
	s.pod(s.name, on("node1"))
	calls := at.calls(v.GetVolumeId())
	i := slices.IndexFunc(calls, func(e *journal.Entry) bool { return e.Method == "ControllerPublishVolume" && e.Node == "node1" })
	require.GreaterOrEqual(s, i, 0)
	attach := calls[i].Request.(*csi.ControllerPublishVolumeRequest)
	require.True(s, attach.GetReadonly())
	require.Equal(s, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, attach.GetVolumeCapability().GetAccessMode().GetMode())
	_, err = s.exec(at, s.name, "verify", dataFile, dataBytes, "3")
	require.NoError(s, err)
	s.requireReadOnly(at)
	s.unpodDetached(s.name)
}

// readOnlyPodArrives has a pod that reads a volume only.
func (s *stage) readOnlyPodArrives(at *site) {
	v := at.create(s.name)
	s.persistent(v)
	s.claim(s.name, 1, s.name)
	attach, publish := s.placed(at, v, func(p *core.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true })
	require.False(s, attach.GetReadonly())
	require.True(s, publish.GetReadonly())
	s.requireReadOnly(at)
	s.unpodDetached(s.name)
}

// secretsArrive has a volume that nobody attaches, stages or publishes without its
// secret.
func (s *stage) secretsArrive(at *site) {
	v := at.create(s.name, func(r *csi.CreateVolumeRequest) {
		r.Parameters = map[string]string{"authFor": "ControllerPublishVolume,ControllerUnpublishVolume,NodeStageVolume,NodePublishVolume"}
	})
	_, err := s.client.CoreV1().Secrets(namespace).Create(s.ctx, &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, StringData: map[string]string{"token": "correct horse"},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
	s.persistent(v, func(p *core.PersistentVolume) {
		ref := &core.SecretReference{Namespace: namespace, Name: s.name}
		p.Spec.CSI.ControllerPublishSecretRef, p.Spec.CSI.NodeStageSecretRef, p.Spec.CSI.NodePublishSecretRef = ref, ref, ref
	})
	s.claim(s.name, 1, s.name)
	s.placed(at, v)
	s.unpodDetached(s.name)
}

// onePodArrives has a volume for one pod, of two that want it.
func (s *stage) onePodArrives(at *site) {
	v := at.create(s.name)
	once := []core.PersistentVolumeAccessMode{core.ReadWriteOncePod}
	s.persistent(v, func(p *core.PersistentVolume) { p.Spec.AccessModes = once })
	s.claim(s.name, 1, s.name, func(c *core.PersistentVolumeClaim) { c.Spec.AccessModes = once })
	attach, publish := s.placed(at, v)
	const mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	require.Equal(s, mode, attach.GetVolumeCapability().GetAccessMode().GetMode())
	require.Equal(s, mode, publish.GetVolumeCapability().GetAccessMode().GetMode())
	second := s.name + "-second"
	s.makePod(second)
	s.unschedulable(second)
	require.NoError(s, s.client.CoreV1().Pods(namespace).Delete(s.ctx, second, metav1.DeleteOptions{}))
	s.unpodDetached(s.name)
}

// unschedulable waits until the scheduler finds no node for a pod, and returns why.
func (s *stage) unschedulable(pod string) (why string) {
	s.Helper()
	until(s, s.client.CoreV1().Pods(namespace).Watch, pod, func(p *core.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
				why = c.Message
				return true
			}
		}
		return false
	})
	return why
}
