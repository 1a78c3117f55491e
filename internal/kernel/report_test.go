//go:build linux

package kernel_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestReportAnswersEveryFeatureInAStableOrder(t *testing.T) {
	t.Parallel()
	want := append(kernel.Features(), kernel.ReflinkFeature, kernel.DirectIOFeature)
	answers := kernel.Report(t.Context(), t.TempDir())
	var got []kernel.Feature
	for _, a := range answers {
		got = append(got, a.Feature)
		require.NotEmpty(t, a.Without, "%s", a.Feature)
		require.NotEqual(t, "unknown feature", a.Without, "%s", a.Feature)
		if a.OK {
			require.Empty(t, a.Reason, "%s", a.Feature)
			require.Empty(t, a.Remedy, "%s", a.Feature)
		} else {
			require.NotEmpty(t, a.Reason, "%s", a.Feature)
		}
		if a.Feature != kernel.ReflinkFeature && a.Feature != kernel.DirectIOFeature {
			require.Equal(t, kernel.Probe(t.Context(), a.Feature) == nil, a.OK, "%s", a.Feature)
		}
	}
	require.Equal(t, want, got)
	require.Len(t, kernel.Report(t.Context(), ""), len(kernel.Features()), "a store that was not named was asked")
}

func TestReportWithADoneContextSaysSo(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, a := range kernel.Report(cancelled, "") {
		require.False(t, a.OK)
		require.Contains(t, a.Reason, "canceled")
	}
}

func TestAnswersKeepTheirNamesInJSON(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(kernel.Answer{Feature: kernel.Loop, Reason: "r", Without: "w", Remedy: "m"})
	require.NoError(t, err)
	require.JSONEq(t, `{"feature":"loop","ok":false,"reason":"r","without":"w","remedy":"m"}`, string(data))
}

func TestOrdinaryUserIsToldToBeRoot(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root)
	const nobody = 65534
	answers := reportOf(t, nobody, nil)
	for _, f := range []kernel.Feature{
		kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Mknod, kernel.FSMount, kernel.MountSetattr,
		kernel.Freeze, kernel.SysResource,
	} {
		require.False(t, answers[f].OK, "%s", f)
		require.Contains(t, answers[f].Remedy, "privileged", "%s: %s", f, answers[f].Reason)
	}
	// What needs no privilege is there as for root, and asked without.
	for _, f := range []kernel.Feature{kernel.Ext4, kernel.Tmpfs, kernel.OpenAt2, kernel.StatxMountID, kernel.CopyFileRange, kernel.UserXattr} {
		require.Equal(t, kernel.Probe(t.Context(), f) == nil, answers[f].OK, "%s: %s", f, answers[f].Reason)
	}
}

func TestRootOfAUserNamespaceIsNotRoot(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root)
	if data, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(data)) == "0" {
		t.Skip("this kernel makes no user namespaces")
	}
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	answers := reportOf(t, 0, &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapping, GidMappings: mapping,
	})
	require.False(t, answers[kernel.Root].OK)
	require.Contains(t, answers[kernel.Root].Reason, "user namespace")
}
