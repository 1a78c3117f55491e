package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDataIsComparedByItsBytes(t *testing.T) {
	t.Parallel()
	p := place{path: filepath.Join(t.TempDir(), "data"), offset: 100, bytes: 3*chunk + 5}
	written, err := p.fill(t.Context())
	require.NoError(t, err)
	read, err := p.sum(t.Context())
	require.NoError(t, err)
	require.Equal(t, written, read)

	f, err := os.OpenFile(p.path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	last := make([]byte, 1)
	_, err = f.ReadAt(last, p.offset+p.bytes-1)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{last[0] ^ 1}, p.offset+p.bytes-1)
	require.NoError(t, err)
	changed, err := p.sum(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, written, changed)

	require.NoError(t, f.Truncate(p.offset+p.bytes-1))
	_, err = p.sum(t.Context())
	require.Error(t, err, "a short read is no equal read")
}
