//go:build linux

package filesystem_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// FuzzProbe looks at devices that have some data somewhere in their head and some
// at the end of their tail. Whatever it is, Probe says one thing of it, which is
// "blank" only if there is nothing.
func FuzzProbe(f *testing.F) {
	for _, fixture := range loadFixtures(f) {
		first := slices.IndexFunc(fixture.head, func(b byte) bool { return b != 0 })
		if first < 0 {
			continue
		}
		head := bytes.TrimRight(fixture.head[first:], "\x00")
		tail := bytes.TrimLeft(fixture.tail, "\x00")
		if len(head) < 64*kibibyte && len(tail) < 64*kibibyte {
			f.Add(head, uint32(first), tail, fixture.size)
		}
	}
	for _, s := range synthetics() {
		first := max(0, slices.IndexFunc(s.head, func(b byte) bool { return b != 0 }))
		f.Add(bytes.TrimRight(s.head[first:], "\x00"), uint32(first), bytes.TrimLeft(s.tail, "\x00"), s.size)
	}

	f.Fuzz(func(t *testing.T, data []byte, at uint32, end []byte, size int64) {
		size = max(size, -size, 0) // the smallest number has no opposite
		device := newSynthetic(size, nil)
		copy(device.head[min(int(at), len(device.head)):], data)
		copy(device.tail[max(0, len(device.tail)-len(end)):], end)
		if size < filesystem.HeadBytes+filesystem.TailBytes {
			// Head and tail overlap: they have to agree.
			device.tail = slices.Clone(device.head[max(0, int64(len(device.head))-int64(len(device.tail))):])
			if size > filesystem.HeadBytes {
				clear(device.tail)
			}
		}
		content := filesystem.Identify(device.head, device.tail, size)

		zero := isZero(device.head) && isZero(device.tail)
		require.Equal(t, zero, content.Blank())
		require.False(t, content.Half && content.Type != "")
		require.GreaterOrEqual(t, content.SizeBytes, int64(0))
		if content.Half {
			require.True(t, bytes.HasPrefix(device.head, []byte("csiemu half format\n")))
			require.Empty(t, content.UUID)
		}
		if content.UUID != "" {
			require.Contains(t, []string{"ext2", "ext3", "ext4", "jbd", "xfs", "btrfs", "luks"}, content.Type)
		}
		content.Fills(size)
		content.Fills(content.SizeBytes)
		require.Equal(t, content, filesystem.Identify(device.head, device.tail, size))
	})
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
