package emulator_test

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/journal"
)

// apart serves an array and a node of its own, as two processes do.
func apart(t *testing.T) (controller, node *driver) {
	t.Helper()
	secret, err := link.SharedSecret([]byte("0123456789abcdef"))
	require.NoError(t, err)
	socket := "unix://" + filepath.Join(shortDir(t), "link.sock")
	controller = startApart(t, emulator.ControllerService, emulator.Link{Listen: socket}, secret)
	node = startApart(t, emulator.NodeService, emulator.Link{Array: socket}, secret)
	node.ControllerClient = controller.ControllerClient
	return controller, node
}

func startApart(t *testing.T, s emulator.Services, l emulator.Link, secret *tls.Config) *driver {
	t.Helper()
	l.TLS = secret
	c := emulator.Config{Backend: memoryCase().open(t, ""), StateDir: shortDir(t), Services: s, Link: l, CheckCaller: true}
	if s == emulator.NodeService {
		c.Nodes = []emulator.Node{{Name: "far"}}
	}
	return start(t, c)
}

// One journal has the calls of all processes, and one place breaks them.
func TestCallsToNodesOfOtherProcesses(t *testing.T) {
	t.Parallel()
	array, far := apart(t)
	v := far.create("v", mountCapability(""), mib)
	v.attachWhenKnown()

	array.inject(`NodeStageVolume{node=far}: return(UNAVAILABLE,"by the array")->hang->ok`)
	_, err := far.NodeStageVolume(t.Context(), v.stageRequest())
	wantCode(t, codes.Unavailable, err)
	require.ErrorContains(t, err, "by the array")

	ended := make(chan error, 1)
	go func() {
		_, err := far.NodeStageVolume(t.Context(), v.stageRequest())
		ended <- err
	}()
	hung, err := journal.ParseMatch(`NodeStageVolume{fault="fault-1: 1*hang"}`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		entries := far.emulator.Journal().Entries(0)
		return len(entries) > 0 && hung.Matches(entries[len(entries)-1])
	}, patience, tick)
	require.NoError(t, array.emulator.RemoveFault(t.Context(), "fault-1"))
	require.NoError(t, <-ended)

	v.publish()
	array.emulator.Journal().Want(t, "CreateVolume", "ControllerPublishVolume{code=OK}", "NodeStageVolume{node=far,code=OK}", "NodePublishVolume{node=far,code=OK}")
	array.emulator.Journal().WantCount(t, 1, "NodeStageVolume{code=UNAVAILABLE}")

	// The checker of the array sees the calls to the node.
	_, err = far.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: "far"})
	require.NoError(t, err)
	found := array.emulator.Findings()
	require.NotEmpty(t, found)
	require.EqualValues(t, "detach-while-published", found[len(found)-1].Rule)
	require.Equal(t, "NodePublishVolume", found[len(found)-1].Earlier.Method)

	// A node works on while the array is away.
	array.stop()
	v.unpublish()
	v.unstage()
}
