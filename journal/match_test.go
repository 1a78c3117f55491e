package journal_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/journal"
)

func TestParseMatch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"*":                              "*",
		" CreateVolume ":                 "CreateVolume",
		"Create*{name=pvc-*}":            "Create*{name=pvc-*}",
		`NodeStageVolume{node="a b"}`:    `NodeStageVolume{node="a b"}`,
		"*{ volume = v , node = n }":     "*{node=n,volume=v}",
		`*{param.csi/x="",code=ABORTED}`: `*{code=ABORTED,param.csi/x=""}`,
		`CreateVolume{"param.a=b"=c}`:    `CreateVolume{"param.a=b"=c}`,
	} {
		m, err := journal.ParseMatch(text)
		require.NoError(t, err, text)
		require.Equal(t, want, m.String())
	}
	for text, reason := range map[string]string{
		"":                              "no method",
		"Frob*":                         "no RPC",
		"CreateVolume{":                 "word is missing",
		"CreateVolume{name}":            "has no value",
		"CreateVolume{name=}":           "word is missing",
		"CreateVolume{name=a":           "neither , nor }",
		"CreateVolume{colour=blue}":     "is none of",
		"CreateVolume{param.=x}":        "is none of",
		"CreateVolume{name=a,name=b}":   "twice",
		`CreateVolume{name="a}`:         "not closed",
		"CreateVolume{name=a} and more": "follows",
		"CreateVolume{code=FINE}":       "no gRPC code",
		"CreateVolume{request.nme=a}":   "has the field nme",
	} {
		_, err := journal.ParseMatch(text)
		require.ErrorContains(t, err, reason, text)
	}
}

func TestMatchFields(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	call(j, "NodeStageVolume", "node-1", &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", PublishContext: map[string]string{"array/id": "a1"},
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
	}, nil, nil)
	e := j.Entries(0)[0]
	for text, want := range map[string]bool{
		"*":                          true,
		"*{node=node-?}":             true,
		"*{node=node-}":              false,
		"Node*{context.array/id=a*}": true,
		"*{context.other=*}":         false,
		"*{request.volume_capability.mount.fs_type=xfs}":                          true,
		"*{request.volume_capability.access_mode.mode=SINGLE_NODE_WRITER}":        true,
		"*{request.volume_capability.access_mode.mode=SINGLE_NODE_SINGLE_WRITER}": false,
		"*{code=OK}":    true,
		"*{fault=\"\"}": true,
		"*{snapshot=*}": true,
	} {
		m, err := journal.ParseMatch(text)
		require.NoError(t, err, text)
		require.Equal(t, want, m.Matches(e), text)
	}
}

// FuzzParseMatch reads what it wrote.
func FuzzParseMatch(f *testing.F) {
	for _, text := range []string{"*", "CreateVolume{name=a}", `*{param."x"=b,node="a\n"}`, "Node*{volume=v*,code=OK}", "{}", `*{name="}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := journal.ParseMatch(text)
		if err != nil {
			return
		}
		again, err := journal.ParseMatch(m.String())
		require.NoError(t, err, m.String())
		require.Equal(t, m.String(), again.String())
	})
}
