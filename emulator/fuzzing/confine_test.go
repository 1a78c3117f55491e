package fuzzing_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
)

// TestEveryPathIsConfined guards the machine that the fuzz test runs on.
func TestEveryPathIsConfined(t *testing.T) {
	t.Parallel()
	w := &world{dir: "/confined"}
	for given, want := range map[string]string{
		"/a": "/confined/a", "a/b": "/confined/a/b", "/../../etc": "/confined/etc", "..": "/confined/", "../x/../../y": "/confined/y",
		"/": "/confined/", "/a\x00b": "/confined/a\x00b", ".//..//z/": "/confined/z",
	} {
		r := &csi.NodePublishVolumeRequest{TargetPath: given, StagingTargetPath: given}
		w.confine(r.ProtoReflect())
		require.Equal(t, want, r.GetTargetPath(), given)
		require.Equal(t, want, r.GetStagingTargetPath(), given)
	}
	expand := &csi.NodeExpandVolumeRequest{VolumePath: "/x", StagingTargetPath: "/y"}
	w.confine(expand.ProtoReflect())
	require.Equal(t, "/confined/x", expand.GetVolumePath())
	require.Equal(t, "/confined/y", expand.GetStagingTargetPath())
}
