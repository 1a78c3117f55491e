//go:build linux

package filesystem_test

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// fixture is the head and the tail of a device as the tool made it that the file
// in testdata/signatures is named after (mkfs.vfat, sgdisk, lvm pvcreate and so
// on; the key material of LUKS was zeroed). The file is a gzip of the device's
// size in 8 bytes, little endian, the head and the tail.
type fixture struct {
	head, tail []byte
	size       int64
}

// loadFixtures reads all of them, by name.
func loadFixtures(tb testing.TB) map[string]fixture {
	tb.Helper()
	paths, err := filepath.Glob("testdata/signatures/*.gz")
	require.NoError(tb, err)
	require.NotEmpty(tb, paths)
	fixtures := map[string]fixture{}
	for _, path := range paths {
		fixtures[strings.TrimSuffix(filepath.Base(path), ".gz")] = loadFixture(tb, path)
	}
	return fixtures
}

func loadFixture(tb testing.TB, path string) fixture {
	tb.Helper()
	file, err := os.Open(path)
	require.NoError(tb, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	require.NoError(tb, err)
	data, err := io.ReadAll(unpacked)
	require.NoError(tb, err)
	size := int64(binary.LittleEndian.Uint64(data))
	data = data[8:]
	head := min(size, filesystem.HeadBytes)
	return fixture{head: data[:head], tail: data[head:], size: size}
}

// newSynthetic is an all-zero device with some pieces of data in its head or
// tail, for what no tool here makes. Negative offsets count from the end.
func newSynthetic(size int64, pieces map[int64]string) fixture {
	f := fixture{head: make([]byte, min(size, filesystem.HeadBytes)), tail: make([]byte, min(size, filesystem.TailBytes)), size: size}
	for offset, data := range pieces {
		if offset >= 0 {
			copy(f.head[offset:], data)
		} else {
			copy(f.tail[int64(len(f.tail))+offset:], data)
		}
	}
	return f
}

// write makes an image file of it.
func (f fixture) write(tb testing.TB) string {
	tb.Helper()
	path := newImage(tb, f.size)
	patch(tb, path, f.size-int64(len(f.tail)), f.tail)
	patch(tb, path, 0, f.head)
	return path
}
