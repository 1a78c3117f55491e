//go:build linux

package kernel_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestProbeAnswersWithATypedErrorOrNone(t *testing.T) {
	t.Parallel()
	for _, f := range kernel.Features() {
		err := kernel.Probe(t.Context(), f)
		if err == nil {
			continue
		}
		var unsupported *kernel.NotSupportedError
		require.ErrorAs(t, err, &unsupported, "%s", f)
		require.ErrorIs(t, err, kernel.ErrNotSupported)
		require.Equal(t, f, unsupported.Feature)
		require.NotEmpty(t, unsupported.Reason)
	}
}

func TestProbeRefusesWhatIsNoQuestion(t *testing.T) {
	t.Parallel()
	err := kernel.Probe(t.Context(), "perpetual-motion")
	require.ErrorContains(t, err, "perpetual-motion")
	require.NotErrorIs(t, err, kernel.ErrNotSupported)

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	err = kernel.Probe(cancelled, kernel.Loop)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, kernel.ErrNotSupported)
}

func TestProbesLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	kernel.Report(t.Context(), dir) // whatever the runtime opens once is open now
	before := descriptors()
	for range 10 {
		kernel.Report(t.Context(), dir)
	}
	require.Equal(t, before, descriptors(), "descriptors are left open")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestMissingProgramIsNamed(t *testing.T) {
	testenv.Need(t, kernel.Ext4)
	t.Setenv("PATH", t.TempDir())
	var unsupported *kernel.NotSupportedError
	require.ErrorAs(t, kernel.Probe(t.Context(), kernel.Ext4), &unsupported)
	require.Contains(t, unsupported.Reason, "mkfs.ext4")
	require.Contains(t, unsupported.Remedy, "e2fsprogs")
}

func TestErrorSaysWhatWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	err := error(&kernel.NotSupportedError{Feature: kernel.Loop, Reason: "no control device", Remedy: "modprobe loop"})
	require.EqualError(t, err, "loop is not supported here: no control device (modprobe loop)")
	require.EqualError(t, &kernel.NotSupportedError{Feature: kernel.FUSE, Reason: "no device"}, "fuse is not supported here: no device")
	require.ErrorIs(t, err, kernel.ErrNotSupported)
	require.False(t, errors.Is(err, os.ErrNotExist))
}

func TestReflinkDependsOnTheDirectory(t *testing.T) {
	t.Parallel()
	require.NoError(t, kernel.Reflink(testenv.XFSDir(t)))
	tmpfs := testenv.TmpfsDir(t)
	for name, dir := range map[string]string{"tmpfs": tmpfs, "nothing": tmpfs + "/nothing"} {
		err := kernel.Reflink(dir)
		require.ErrorIs(t, err, kernel.ErrNotSupported, name)
		require.ErrorContains(t, err, dir, name)
	}
}

func TestDirectIODependsOnTheDirectory(t *testing.T) {
	t.Parallel()
	require.NoError(t, kernel.DirectIO(testenv.XFSDir(t)))
	ramfs := t.TempDir()
	require.NoError(t, unix.Mount("ramfs", ramfs, "ramfs", 0, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(ramfs, unix.MNT_DETACH)) })
	err := kernel.DirectIO(ramfs)
	require.ErrorIs(t, err, kernel.ErrNotSupported)
	require.ErrorContains(t, err, ramfs)
}

func TestBootIDIsThatOfTheKernel(t *testing.T) {
	t.Parallel()
	id, err := kernel.BootID()
	require.NoError(t, err)
	want, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), id)
	again, err := kernel.BootID()
	require.NoError(t, err)
	require.Equal(t, id, again)
}
