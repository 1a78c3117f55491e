package backendtest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/testenv"
)

// testLimit writes to a file system until it is full.
func testLimit(t *testing.T, h Harness) {
	for _, a := range h.accesses()[1:] {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			h.needs(t, a, Data, Limit)
			r := newRig(t, h)
			u := r.use(r.create(a), a)
			u.up()
			sum := u.write(u.path, "before")
			name := filepath.Join(u.path, "filler")
			written, err := fill(name, a.bytes)
			require.True(t, testenv.IsNoSpace(err), "%d bytes written, then: %v", written, err)
			require.Less(t, written, a.bytes)
			require.Greater(t, written, a.bytes/4)
			u.requireData(u.path, sum)
			require.NoError(t, os.Remove(name))
			u.requireData(u.path, u.write(u.path, "it is usable again"))
			u.down()
		})
	}
}

// fill writes up to limit bytes to a new file and flushes it.
func fill(name string, limit int64) (written int64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	written, err = io.Copy(f, io.LimitReader(zeroReader{}, limit))
	if err != nil {
		return written, err
	}
	return written, f.Sync()
}

// testDevice looks at a raw block volume from end to end.
func testDevice(t *testing.T, h Harness) {
	r := newRig(t, h)
	a := h.accesses()[0]
	h.needs(t, a, Devices)
	for _, bytes := range []int64{backends.Granularity, 3*backends.Granularity + mebibyte, a.bytes} {
		a.bytes = bytes
		u := r.use(r.create(a), a)
		u.up()
		u.requireSize(u.path)
		info, err := os.Stat(u.path)
		require.NoError(t, err)
		require.Equal(t, os.ModeDevice, info.Mode().Type(), "a block device")

		f, err := os.OpenFile(u.path, os.O_RDWR, 0)
		require.NoError(t, err)
		last := []byte("the last bytes")
		_, err = f.WriteAt(last, bytes-int64(len(last)))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		_, err = f.WriteAt(last, bytes)
		require.Error(t, err, "a write past the end")
		got := make([]byte, len(last))
		_, err = f.ReadAt(got, bytes-int64(len(last)))
		require.NoError(t, err)
		require.Equal(t, last, got)
		_, err = f.ReadAt(got, bytes)
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, f.Close())
		u.down()
	}
}

// testGrowInUse grows a volume that is published.
func testGrowInUse(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "before")
		u.volume.SizeBytes *= 2
		require.NoError(t, r.backend.Grow(t.Context(), u.volume))
		require.NoError(t, r.backend.Grow(t.Context(), u.volume), "a repeated call")
		smaller := u.volume
		smaller.SizeBytes /= 2
		require.NoError(t, r.backend.Grow(t.Context(), smaller), "it never shrinks")
		_, err := r.backend.Attach(t.Context(), u.volume, u.attachment)
		require.NoError(t, err, "it is attached still")

		got, err := r.node.Expand(t.Context(), u.staged)
		if h.lacks(a, Growth) != "" {
			require.ErrorIs(t, err, backends.ErrPrecondition)
			u.requireData(u.path, sum)
			u.unpublish(u.path)
			u.unstage()
			u.stage()
			u.publish(backends.PublishRequest{})
			got, err = r.node.Expand(t.Context(), u.staged)
		}
		require.NoError(t, err)
		require.Equal(t, u.volume.SizeBytes, got)
		got, err = r.node.Expand(t.Context(), u.staged)
		require.NoError(t, err, "a repeated call")
		require.Equal(t, u.volume.SizeBytes, got)
		u.requireSize(u.path)
		u.requireSize(u.staged.Path)
		u.requireData(u.path, sum)
		u.requireData(u.path, u.write(u.path, "after"))
		h.needs(t, a, Growth) // to say what was not tested
		u.down()
	})
}

// testGrowAtRest grows a volume that is not attached, and one that is staged
// nowhere: the next stage shows the new size.
func testGrowAtRest(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		sum := u.write(u.path, "before")
		u.down()
		u.volume.SizeBytes *= 2
		require.NoError(t, r.backend.Grow(t.Context(), u.volume))
		u.up()
		u.requireSize(u.path)
		u.requireData(u.path, sum)
		u.unpublish(u.path)
		u.unstage()

		u.volume.SizeBytes += mebibyte * 16
		require.NoError(t, r.backend.Grow(t.Context(), u.volume))
		u.stage()
		u.publish(backends.PublishRequest{})
		u.requireSize(u.path)
		u.requireData(u.path, sum)
		got, err := r.node.Expand(t.Context(), u.staged)
		require.NoError(t, err)
		require.Equal(t, u.volume.SizeBytes, got)
		u.down()
	})
}
