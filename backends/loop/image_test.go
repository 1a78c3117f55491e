//go:build linux

package loop_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestAVolumeTakesTheSpaceThatItsProvisioningSays(t *testing.T) {
	t.Parallel()
	stores := map[string]func(testing.TB) string{
		"tmpfs": tmpfsDir,
		"disk":  func(tb testing.TB) string { return tb.TempDir() },
		"xfs":   testenv.XFSDir,
	}
	const size = 16 * mebibyte
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Root, kernel.Loop)
			r := newRigAt(t, store(t))
			takes := func(v backends.Volume, want int64) {
				t.Helper()
				u, err := r.backend.Usage(t.Context(), v)
				require.NoError(t, err)
				require.InDelta(t, want, u.AllocatedBytes, mebibyte/2)
				info, err := os.Stat(image(v))
				require.NoError(t, err)
				require.Equal(t, v.SizeBytes, info.Size())
			}
			thin := r.create(size)
			takes(thin, 0)
			thick := r.volume(backends.Layout{SizeBytes: size, Thick: true})
			require.NoError(t, r.backend.Create(t.Context(), thick))
			takes(thick, size)

			thick.SizeBytes, thin.SizeBytes = 2*size, 2*size
			require.NoError(t, r.backend.Grow(t.Context(), thick))
			require.NoError(t, r.backend.Grow(t.Context(), thin))
			takes(thick, 2*size)
			takes(thin, 0)

			clone := r.volume(thick.Layout)
			require.NoError(t, r.backend.Clone(t.Context(), thin, clone))
			takes(clone, 2*size)
		})
	}
}

// A thick clone must not share blocks with its source, as writing to them would
// need space that was promised already.
func TestAThickCloneSharesNoBlocks(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, testenv.XFSDir(t))
	v := r.create(8 * mebibyte)
	patch(t, image(v), 0, string(make([]byte, 4*mebibyte)))
	before, err := r.backend.FreeBytes(t.Context())
	require.NoError(t, err)
	clone := r.volume(backends.Layout{SizeBytes: v.SizeBytes, Thick: true})
	require.NoError(t, r.backend.Clone(t.Context(), v, clone))
	after, err := r.backend.FreeBytes(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 8*mebibyte, before-after, 2*mebibyte)
}

func TestAFullStoreKeepsNothingOfAVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	shrink(t, r.dir, "size=8m")
	v := r.volume(backends.Layout{SizeBytes: 64 * mebibyte, Thick: true})
	require.ErrorIs(t, r.backend.Create(t.Context(), v), backends.ErrExhausted)
	requireEmpty(t, v.Dir)

	source := r.create(64 * mebibyte)
	patch(t, image(source), 0, string(make([]byte, 6*mebibyte)))
	s := r.snapshotName(source)
	require.ErrorIs(t, r.backend.Snapshot(t.Context(), source, s), backends.ErrExhausted)
	requireEmpty(t, s.Dir)
	clone := r.volume(source.Layout)
	require.ErrorIs(t, r.backend.Clone(t.Context(), source, clone), backends.ErrExhausted)
	requireEmpty(t, clone.Dir)
}

func shrink(t *testing.T, dir, size string) {
	t.Helper()
	o, err := mount.ParseOptions([]string{size})
	require.NoError(t, err)
	require.NoError(t, mount.Remount(t.Context(), dir, o))
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestACancelledCallLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := r.volume(backends.Layout{SizeBytes: mebibyte})
	require.ErrorIs(t, r.backend.Create(ctx, v), context.Canceled)
	requireEmpty(t, v.Dir)
}

func TestDirectIOIsRefusedWhereTheStoreHasNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.volume(backends.Layout{SizeBytes: mebibyte, DirectIO: true})
	err := r.backend.Create(t.Context(), v)
	if err == nil { // tmpfs has it from Linux 6.6 on
		a, _ := r.attach(v, false)
		require.True(t, status(t, a.ID).DirectIO)
		return
	}
	require.ErrorIs(t, err, backends.ErrInvalid)
	requireEmpty(t, v.Dir)
}

func TestASnapshotOfAnAttachedVolumeHasWhatWasWrittenToItsDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	_, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	device, err := os.OpenFile(s.Device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer device.Close()
	_, err = device.WriteAt([]byte("in the page cache"), 4096) // and not flushed
	require.NoError(t, err)

	snapshot := r.snapshot(v)
	restored := r.restore(snapshot, 2*mebibyte)
	require.Equal(t, "in the page cache", read(t, image(restored))[4096:4096+17])
	info, err := os.Stat(image(restored))
	require.NoError(t, err)
	require.EqualValues(t, 2*mebibyte, info.Size())
}

func TestExtents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	patch(t, image(v), 8192, "a")
	base := r.snapshot(v)
	patch(t, image(v), 65536, "b")
	target := r.snapshot(v)

	var allocated, changed []backends.Extent
	for e, err := range r.backend.Allocated(t.Context(), target, 0) {
		require.NoError(t, err)
		allocated = append(allocated, e)
	}
	for e, err := range r.backend.Changed(t.Context(), base, target, 0) {
		require.NoError(t, err)
		changed = append(changed, e)
	}
	require.Equal(t, []blockio.Extent{{Offset: 8192, Length: 4096}, {Offset: 65536, Length: 4096}}, allocated)
	require.Equal(t, []blockio.Extent{{Offset: 65536, Length: 4096}}, changed)

	require.NoError(t, r.backend.DeleteSnapshot(t.Context(), base))
	for _, err := range r.backend.Changed(t.Context(), base, target, 0) {
		require.ErrorIs(t, err, backends.ErrDataLoss)
	}
}

func TestWhatAKilledCopyLeftIsNoVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	source := r.create(mebibyte)
	v := r.volume(source.Layout)
	write(t, filepath.Join(v.Dir, "image.tmp"), "half of the bytes")

	_, err := r.backend.Attach(t.Context(), v, backends.Attachment{ID: newID("att")})
	require.ErrorIs(t, err, backends.ErrDataLoss)
	require.NoError(t, r.backend.Clone(t.Context(), source, v), "the copy is made again")
	entries, err := os.ReadDir(v.Dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, digest(t, image(source)), digest(t, image(v)))
}
