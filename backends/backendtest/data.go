package backendtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// dataBytes is how much is written: more than a block of any file system, and
// not a multiple of one.
const dataBytes = 3<<20 + 4096 + 7

// noise is data that cannot be compressed or taken for another: n bytes that
// depend on the seed only.
func noise(seed string, n int64) io.Reader {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	var key [32]byte
	copy(key[:], h.Sum(nil))
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// data is the checksum of what a volume holds; it is empty where the backend
// keeps none.
type data string

// write replaces what the volume holds, as seen at path, and flushes it.
func (u *use) write(path, seed string) data {
	u.r.t.Helper()
	if u.r.h.lacks(u.a, Data) != "" {
		return ""
	}
	n := min(dataBytes, u.volume.SizeBytes)
	f, err := os.OpenFile(u.file(path), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(u.r.t, err)
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), noise(seed, n))
	require.NoError(u.r.t, errors.Join(err, f.Sync(), f.Close()))
	return data(hex.EncodeToString(h.Sum(nil)))
}

// file is where the data lies: in the file system, or on the device.
func (u *use) file(path string) string {
	if u.a.block {
		return path
	}
	return filepath.Join(path, "data")
}

// requireData reads what the volume holds, as seen at path.
func (u *use) requireData(path string, want data) {
	u.r.t.Helper()
	if want == "" {
		return
	}
	require.Equal(u.r.t, want, digest(u.r.t, u.file(path), min(dataBytes, u.volume.SizeBytes)))
}

// digest reads the first n bytes of a file, which must be there.
func digest(t *testing.T, name string, n int64) data {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.CopyN(h, f, n)
	require.NoError(t, err)
	return data(hex.EncodeToString(h.Sum(nil)))
}

// size is the length of a file or device.
func size(t *testing.T, name string) int64 {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	return n
}

// requireSize compares what the volume shows at path with its size: a device
// exactly, a file system less its own structures.
func (u *use) requireSize(path string) {
	u.r.t.Helper()
	want := u.volume.SizeBytes
	stats, err := u.r.node.Stats(u.r.t.Context(), u.staged, path)
	require.NoError(u.r.t, err)
	require.Equal(u.r.t, u.a.block, stats.Block)
	if u.a.block {
		require.Equal(u.r.t, backends.Stats{TotalBytes: want, AvailableBytes: -1, UsedBytes: -1, Block: true}, stats)
		if u.isDevice() && path != u.staged.Path {
			require.Equal(u.r.t, want, size(u.r.t, path))
		}
		return
	}
	require.LessOrEqual(u.r.t, stats.TotalBytes, want)
	require.Greater(u.r.t, stats.TotalBytes, want/10*7, "the file system fills the volume")
	require.LessOrEqual(u.r.t, stats.AvailableBytes, stats.TotalBytes)
	require.NotZero(u.r.t, stats.AvailableBytes)
	require.LessOrEqual(u.r.t, stats.UsedBytes, stats.TotalBytes)
}

// zeros is the checksum of n zeros.
func zeros(n int64) data {
	h := sha256.New()
	_, _ = io.Copy(h, io.LimitReader(zeroReader{}, n))
	return data(hex.EncodeToString(h.Sum(nil)))
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }
