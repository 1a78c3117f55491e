package backendtest

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// patch writes a few ranges of a device, far apart.
func patch(t *testing.T, device, seed string, offsets ...int64) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	require.NoError(t, err)
	for _, offset := range offsets {
		_, err := f.Seek(offset, io.SeekStart)
		require.NoError(t, err)
		_, err = io.Copy(f, noise(seed, 2*backends.Granularity))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(f.Sync(), f.Close()))
}

// collect reads extents and checks their form.
func collect(t *testing.T, from, size int64, all iter.Seq2[backends.Extent, error]) (found []backends.Extent) {
	t.Helper()
	end := int64(0)
	for e, err := range all {
		require.NoError(t, err)
		require.Positive(t, e.Length)
		require.GreaterOrEqual(t, e.Offset, end, "ascending, not overlapping")
		end = e.Offset + e.Length
		require.Greater(t, end, from, "each ends after the start")
		require.LessOrEqual(t, end, size)
		found = append(found, e)
	}
	return found
}

// covers says whether extents hold a whole range.
func covers(all []backends.Extent, offset, length int64) bool {
	for _, e := range all {
		if e.Offset <= offset && offset+length <= e.Offset+e.Length {
			return true
		}
	}
	return false
}

func total(all []backends.Extent) (n int64) {
	for _, e := range all {
		n += e.Length
	}
	return n
}

// testExtents compares extents with what was written, and copies a volume by
// them alone.
func testExtents(t *testing.T, h Harness) {
	r := newRig(t, h)
	a := h.accesses()[0]
	h.needs(t, a, Devices, Extents)
	a.bytes = 64 * mebibyte
	b := r.backend.(backends.ExtentBackend)
	u := r.use(r.create(a), a)
	empty := r.snapshot(u.volume)
	require.Empty(t, collect(t, 0, a.bytes, b.Allocated(t.Context(), empty, 0)))

	const early, middle, late = 0, 20*mebibyte + 4096, 64*mebibyte - 2*backends.Granularity
	u.up()
	patch(t, u.path, "base", early, middle)
	u.down()
	base := r.snapshot(u.volume)
	allocated := collect(t, 0, a.bytes, b.Allocated(t.Context(), base, 0))
	require.True(t, covers(allocated, early, 2*backends.Granularity))
	require.True(t, covers(allocated, middle, 2*backends.Granularity))
	require.Less(t, total(allocated), int64(8*mebibyte), "holes are not data")
	require.Equal(t, allocated, collect(t, 0, a.bytes, b.Changed(t.Context(), empty, base, 0)))
	require.Empty(t, collect(t, 0, a.bytes, b.Changed(t.Context(), base, base, 0)), "nothing differs from itself")

	u.up()
	patch(t, u.path, "target", middle+backends.Granularity, late)
	u.down()
	target := r.snapshot(u.volume)
	changed := collect(t, 0, a.bytes, b.Changed(t.Context(), base, target, 0))
	require.True(t, covers(changed, middle+backends.Granularity, 2*backends.Granularity))
	require.True(t, covers(changed, late, 2*backends.Granularity))
	require.False(t, covers(changed, early, 1))
	require.Equal(t, len(changed)-1, len(collect(t, middle+mebibyte, a.bytes, b.Changed(t.Context(), base, target, middle+mebibyte))))
	require.Empty(t, collect(t, a.bytes, a.bytes, b.Allocated(t.Context(), target, a.bytes)))

	// A backup by changed blocks: the base, and then only what changed.
	from, to := r.restored(a, target), r.restored(a, base)
	copyExtents(t, from.path, to.path, changed)
	require.Equal(t, digest(t, from.path, a.bytes), digest(t, to.path, a.bytes))
	zeroed := r.use(r.create(a), a)
	zeroed.up()
	copyExtents(t, from.path, zeroed.path, collect(t, 0, a.bytes, b.Allocated(t.Context(), target, 0)))
	require.Equal(t, digest(t, from.path, a.bytes), digest(t, zeroed.path, a.bytes))

	requireEnds(t, b, base, target)
}

// restored is a new volume with the bytes of a snapshot, in use.
func (r *rig) restored(a access, s backends.Snapshot) *use {
	r.t.Helper()
	v := r.volume(r.plan(a, a.bytes))
	require.NoError(r.t, r.backend.Restore(r.t.Context(), s, v))
	u := r.use(v, a)
	u.up()
	return u
}

func copyExtents(t *testing.T, from, to string, all []backends.Extent) {
	t.Helper()
	src, err := os.Open(from)
	require.NoError(t, err)
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer dst.Close()
	for _, e := range all {
		_, err := io.Copy(io.NewOffsetWriter(dst, e.Offset), io.NewSectionReader(src, e.Offset, e.Length))
		require.NoError(t, err)
	}
	require.NoError(t, dst.Sync())
}

// requireEnds stops early: by the reader, by the context, by a snapshot that is
// gone.
func requireEnds(t *testing.T, b backends.ExtentBackend, base, target backends.Snapshot) {
	t.Helper()
	for _, err := range b.Allocated(t.Context(), target, 0) {
		require.NoError(t, err)
		break // the reader has enough
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	gone := backends.Snapshot{ID: newID("snap"), Dir: base.Dir + "-gone", Layout: base.Layout}
	for name, all := range map[string]iter.Seq2[backends.Extent, error]{
		"allocated, ended context": b.Allocated(ended, target, 0),
		"changed, ended context":   b.Changed(ended, base, target, 0),
		"allocated, gone":          b.Allocated(t.Context(), gone, 0),
		"changed, base gone":       b.Changed(t.Context(), gone, target, 0),
		"changed, target gone":     b.Changed(t.Context(), base, gone, 0),
	} {
		var last error
		for _, err := range all {
			last = err
		}
		require.Error(t, last, name)
	}
}
