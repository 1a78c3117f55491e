//go:build linux

package filesystem_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// The tools, whose verdict the other tests go by, notice a superblock that was
// not stamped right: one wrong bit in the identity or in the checksum.
func TestToolsNoticeWrongStamps(t *testing.T) {
	t.Parallel()
	const (
		extSuper, extUUID, extChecksum       = 1024, 0x68, 0x3FC
		xfsUUID, xfsChecksum, xfsMetaUUID    = 32, 224, 248
		btrfsSuper, btrfsFSID, btrfsMetaUUID = 64 * kibibyte, 32, 571
	)
	maker := shared()
	cases := []struct {
		name   string
		fs     filesystem.Type
		offset int64
	}{
		{"checksum of the primary superblock", filesystem.Ext4, extSuper + extChecksum},
		{"UUID of the primary superblock", filesystem.Ext4, extSuper + extUUID},
		{"checksum of the primary superblock", filesystem.XFS, xfsChecksum},
		{"UUID of the primary superblock", filesystem.XFS, xfsUUID},
		{"metadata UUID of the primary superblock", filesystem.XFS, xfsMetaUUID},
		{"checksum of the second superblock", filesystem.XFS, 75*mebibyte + xfsChecksum},
		{"UUID of the second superblock", filesystem.XFS, 75*mebibyte + xfsUUID},
		{"checksum of the primary superblock", filesystem.Btrfs, btrfsSuper},
		{"UUID of the primary superblock", filesystem.Btrfs, btrfsSuper + btrfsFSID},
		{"metadata UUID of the primary superblock", filesystem.Btrfs, btrfsSuper + btrfsMetaUUID},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s, %s", c.fs, c.name), func(t *testing.T) {
			t.Parallel()
			path := newFilesystem(t, maker, c.fs, types[c.fs])
			require.NoError(t, check(t, path, c.fs))
			damage(t, path, c.offset)

			failed := &checkError{}
			require.ErrorAs(t, check(t, path, c.fs), &failed)
			content := probe(t, path)
			require.Equal(t, string(c.fs), content.Type, "a wrong checksum hides nothing")
			require.False(t, content.Clean)
		})
	}
}

// What some tools do not look at unless the primary superblock is lost must be
// right all the same: every copy has the identity and a checksum of its own.
func TestCopiesOfTheSuperblockAreWhole(t *testing.T) {
	t.Parallel()
	maker := shared()
	cases := []struct {
		fs      filesystem.Type
		size    int64
		copies  []int64
		primary int64
		length  int
		// same are the fields that are equal in all copies.
		same map[int64]int
	}{
		{
			filesystem.Ext4, 64 * mebibyte,
			[]int64{8193 * kibibyte, 24577 * kibibyte, 40961 * kibibyte, 57345 * kibibyte},
			1024, 1024,
			map[int64]int{0x68: 16, 0xEC: 16, 0x108: 4},
		},
		{
			filesystem.Ext4, gibibyte,
			[]int64{128 * mebibyte, 3 * 128 * mebibyte, 5 * 128 * mebibyte, 7 * 128 * mebibyte},
			1024, 1024,
			map[int64]int{0x68: 16, 0xEC: 16, 0x108: 4},
		},
		{
			filesystem.XFS, 300 * mebibyte,
			[]int64{75 * mebibyte, 150 * mebibyte, 225 * mebibyte},
			0, 512,
			map[int64]int{32: 16, 248: 16, 216: 4},
		},
		{
			filesystem.Btrfs, 256 * mebibyte,
			[]int64{64 * mebibyte},
			64 * kibibyte, 4096,
			map[int64]int{32: 16, 571: 16, 188: 8},
		},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s of %d MiB", c.fs, c.size/mebibyte), func(t *testing.T) {
			t.Parallel()
			path := newFilesystem(t, maker, c.fs, c.size)
			primary := readAt(t, path, c.primary, c.length)
			for _, offset := range c.copies {
				copied := readAt(t, path, offset, c.length)
				for field, n := range c.same {
					require.Equal(t, primary[field:field+int64(n)], copied[field:field+int64(n)],
						"copy at %d, field at %#x", offset, field)
				}
				require.NoError(t, checkCopy(t, path, c.fs, offset))
			}
			for _, offset := range c.copies {
				damage(t, path, offset+0x68)
				require.Error(t, checkCopy(t, path, c.fs, offset))
			}
		})
	}
}

// Two formats differ in more than the UUID where that matters.
func TestVolumesHaveHashSeedsOfTheirOwn(t *testing.T) {
	t.Parallel()
	maker := shared()
	seeds := map[string]bool{}
	for range 2 {
		path := newFilesystem(t, maker, filesystem.Ext4, 16*mebibyte)
		seeds[string(readAt(t, path, 1024+0xEC, 16))] = true
	}
	require.Len(t, seeds, 2)
}

// damage changes one bit.
func damage(t *testing.T, path string, offset int64) {
	t.Helper()
	b := readAt(t, path, offset, 1)
	b[0] ^= 0x10
	patch(t, path, offset, b)
}
