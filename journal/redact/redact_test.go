package redact_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal/redact"
)

func TestMessageWithoutSecretsIsItself(t *testing.T) {
	t.Parallel()
	m := &csi.CreateVolumeRequest{
		Name: "v", Parameters: map[string]string{"pool": "fast"},
		VolumeCapabilities: []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: []string{"noatime", "size=5"}}}}},
	}
	require.Same(t, m, redact.Message(m))
}

func TestSecretsAreStrippedFromACopy(t *testing.T) {
	t.Parallel()
	m := &csi.NodeStageVolumeRequest{
		Secrets: map[string]string{"a": "first"}, VolumeContext: map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "second", "plain": "seen"},
		VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			MountFlags: []string{"noatime", "password=third"},
		}}},
	}
	was := proto.Clone(m)
	got := redact.Message(m).(*csi.NodeStageVolumeRequest)
	require.Equal(t, redact.Stripped, got.GetSecrets()["a"])
	require.Equal(t, redact.Stripped, got.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"])
	require.Equal(t, "seen", got.GetVolumeContext()["plain"])
	require.Equal(t, []string{"noatime", "password=" + redact.Stripped}, got.GetVolumeCapability().GetMount().GetMountFlags())
	require.True(t, proto.Equal(was, m), "the caller's message is left alone")
	all := redact.MessageAndFlags(m).(*csi.NodeStageVolumeRequest)
	require.Equal(t, []string{redact.Stripped, redact.Stripped}, all.GetVolumeCapability().GetMount().GetMountFlags())
}

// A secret that begins with another one must not leave its end behind.
func TestTextLosesLongSecretsFirst(t *testing.T) {
	t.Parallel()
	m := &csi.CreateVolumeRequest{Secrets: map[string]string{"a": "pass", "b": "password123", "c": "x"}}
	for range 20 {
		require.Equal(t, "no ***stripped*** and ***stripped*** but x", redact.Text(m, "no password123 and pass but x"))
	}
}
