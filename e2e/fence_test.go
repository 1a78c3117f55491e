package e2e_test

import (
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csiemu/csiemu/e2e/cluster"
)

// outOfService is what an administrator says of a node that will not come back by
// itself: its pods are deleted and its volumes detached, though nobody unmounted
// them.
const outOfService = `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`

// fenced loses a node that goes on writing, and has its volume moved: what the node
// writes after the detachment fails and reaches nothing, and once its power is off
// the next node gets the volume.
func (s *stage) fenced(at *site) {
	lost, next := at.cluster.Node(1), at.cluster.Node(2)
	v := at.create(s.name)
	s.persistent(v)
	s.claim(s.name, 1, s.name)
	s.pod("lost", on(lost.Name))
	_, err := s.exec(at, "lost", "fill", dataFile, dataBytes, "1")
	require.NoError(s, err)
	pod, err := s.client.CoreV1().Pods(namespace).Get(s.ctx, "lost", metav1.GetOptions{})
	require.NoError(s, err)
	mounted := filepath.Join(cluster.KubeletDir, "pods", string(pod.UID), "volumes", "kubernetes.io~csi", s.name, "mount")
	gone := untilGone[*storage.VolumeAttachment](s, s.client.StorageV1().VolumeAttachments().Watch, s.attachment().Name)

	require.NoError(s, lost.Disconnect(s.ctx))
	require.NoError(s, lost.NotReady(s.ctx))
	s.patchNode(lost.Name, outOfService)
	s.Logf("the lost node wrote %d times until its device was taken away", s.writesUntilFenced(lost, mounted))
	gone()
	for _, file := range []string{"file", "other"} {
		_, err = lost.Output(s.ctx, "podprog", "fill", filepath.Join(mounted, file), dataBytes, "3")
		require.Error(s, err, "the lost node writes %s", file)
	}
	require.NoError(s, lost.Kill())

	s.pod("next", on(next.Name))
	_, err = s.exec(at, "next", "verify", dataFile, dataBytes, "1")
	require.NoError(s, err)
	s.unpodDetached("next")
}

func (s *stage) patchNode(name, patch string) {
	s.Helper()
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s, err)
}

// lookEvery is how often is asked for what tells nobody.
const lookEvery = 200 * time.Millisecond

// writesUntilFenced has a node write into a directory until it cannot, and returns
// how often it could.
func (s *stage) writesUntilFenced(n *cluster.Node, dir string) (times int) {
	s.Helper()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		_, err := n.Output(s.ctx, "podprog", "fill", filepath.Join(dir, "other"), "100000", "4")
		require.NoError(s, s.ctx.Err(), "wait until the device is taken away")
		if err != nil {
			return times
		}
		times++
		select {
		case <-again.C:
		case <-s.ctx.Done():
		}
	}
}
