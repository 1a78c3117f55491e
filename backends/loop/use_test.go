//go:build linux

package loop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func ioctl(t *testing.T, f *os.File, request uintptr, argument *uint32) {
	t.Helper()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(argument)))
	require.Zero(t, errno)
}

// readers are the devices over the device of an attachment.
func readers(t *testing.T, attachment string) []string {
	t.Helper()
	all, err := loopdev.Scan(t.Context())
	require.NoError(t, err)
	var names []string
	for _, st := range all {
		if strings.HasPrefix(st.Name, attachment+"-ro-") {
			require.True(t, st.ReadOnly)
			names = append(names, st.Name)
		}
	}
	return names
}

func TestExpandOfAMountedFileSystem(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			_, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			q.FSType = fsType
			s := r.stage(q)
			got, err := r.node.Expand(t.Context(), s)
			require.NoError(t, err, "nothing to do")
			require.Equal(t, size, got)

			v.SizeBytes = 2 * size
			require.NoError(t, r.backend.Grow(t.Context(), v))
			got, err = r.node.Expand(t.Context(), s)
			if fsType == "ext4" && kernel.Probe(t.Context(), kernel.SysResource) != nil {
				require.ErrorIs(t, err, backends.ErrPrecondition)
				require.ErrorContains(t, err, "CAP_SYS_RESOURCE")
				require.ErrorContains(t, err, "staged again")
				require.NoError(t, r.node.Unstage(t.Context(), s))
				s = r.stage(q)
				got, err = r.node.Expand(t.Context(), s)
			}
			require.NoError(t, err)
			require.Equal(t, 2*size, got)
			stats, err := r.node.Stats(t.Context(), s, s.Path)
			require.NoError(t, err)
			require.Greater(t, stats.TotalBytes, size*3/2)
		})
	}
}

func TestExpandOfAReadOnlyMount(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.XFS)
	r := newRig(t)
	v := r.create(sizes["xfs"])
	s := r.mounted(v, "xfs", "ro")
	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))
	_, err := r.node.Expand(t.Context(), s)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, "read-only")
}

func TestHoldMakesASnapshotOfAMountedFileSystemClean(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType), kernel.Freeze)
			r := newRig(t)
			v := r.create(size)
			s := r.mounted(v, fsType)
			f, err := os.Create(filepath.Join(s.Path, "file")) // not flushed
			require.NoError(t, err)
			_, err = f.WriteString("in the page cache")
			require.NoError(t, err)
			require.NoError(t, f.Close())

			release, err := r.node.Hold(t.Context(), s, backends.Hold{Published: true})
			require.NoError(t, err)
			snapshot := r.snapshot(v)
			require.NoError(t, release())
			write(t, filepath.Join(s.Path, "later"), "x")
			require.NoError(t, r.node.Unstage(t.Context(), s))

			restored := r.mounted(r.restore(snapshot, size), fsType)
			require.Equal(t, "in the page cache", read(t, filepath.Join(restored.Path, "file")))
			require.NoFileExists(t, filepath.Join(restored.Path, "later"))
		})
	}
}

func TestRecoverThawsWhatAKilledProcessLeftFrozen(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4, kernel.Freeze)
	r := newRig(t)
	s := r.mounted(r.create(64*mebibyte), "ext4")
	require.NoError(t, r.node.Recover(t.Context(), s), "nothing to do")
	dir, err := os.Open(s.Path)
	require.NoError(t, err)
	const fifreeze = 0xC0045877
	ioctl(t, dir, fifreeze, new(uint32))
	t.Cleanup(func() { require.NoError(t, freeze.Thaw(s.Path)) }) // whatever happens
	require.NoError(t, dir.Close())

	_, err = r.node.Hold(t.Context(), s, backends.Hold{Published: true})
	require.ErrorIs(t, err, backends.ErrHeld)
	require.NoError(t, r.node.Recover(t.Context(), s))
	write(t, filepath.Join(s.Path, "file"), "x")
}

func TestStatsOfAPathWhereTheVolumeIsNot(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	v := r.create(64 * mebibyte)
	_, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	s := r.stage(q)
	q.Block = true
	block := s
	block.Block = true
	for _, path := range []string{r.work, filepath.Join(r.work, "missing"), r.mounted(r.create(64*mebibyte), "ext4").Path} {
		_, err := r.node.Stats(t.Context(), s, path)
		require.ErrorIs(t, err, backends.ErrNotFound, path)
		_, err = r.node.Stats(t.Context(), block, path)
		require.ErrorIs(t, err, backends.ErrNotFound, path)
	}
	stats, err := r.node.Stats(t.Context(), s, s.Path)
	require.NoError(t, err)
	require.InDelta(t, 64*mebibyte, stats.TotalBytes, 16*mebibyte)
	require.Positive(t, stats.AvailableBytes)
	require.Positive(t, stats.UsedBytes)
	require.Positive(t, stats.TotalInodes)
	require.Equal(t, stats.TotalInodes, stats.AvailableInodes+stats.UsedInodes)
}

func TestAnUncleanFileSystemIsCheckedBeforeItIsMounted(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	v := r.create(64 * mebibyte)
	s := r.mounted(v, "ext4", "errors=continue")
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(s.Device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Skipf("this kernel makes no errors on demand: %v", err)
	}
	require.NoError(t, r.node.Unstage(t.Context(), s))
	s = r.mounted(r.restore(r.snapshot(v), v.SizeBytes), "ext4")
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(s.Device), "errors_count"))
	require.NoError(t, err)
	require.Equal(t, "0\n", string(count), "e2fsck clears what was recorded")
}
