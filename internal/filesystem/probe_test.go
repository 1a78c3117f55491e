//go:build linux

package filesystem_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// little is a number as most superblocks have it.
func little(v uint32) string { return string(binary.LittleEndian.AppendUint32(nil, v)) }

// synthetics are devices that no tool here makes, with what Probe says of them.
func synthetics() map[string]fixture {
	const size = 16 * mebibyte
	md1 := func(sector uint32) string {
		return little(0xa92b4efc) + little(1) + strings.Repeat("\x00", 136) + little(sector) + little(0)
	}
	zfs := map[int64]string{16 * kibibyte: "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x24\x00\x00\x00\x20\x00\x00\x00\x07version"}
	for ring := int64(128); ring < 140; ring++ {
		zfs[ring*kibibyte] = little(0x00bab10c) + little(0) + little(5000) + little(0)
	}
	return map[string]fixture{
		"md 0.90":              newSynthetic(size, map[int64]string{-64 * kibibyte: little(0xa92b4efc) + little(0) + little(90)}),
		"md 0.90, odd size":    newSynthetic(size+60*kibibyte, map[int64]string{-124 * kibibyte: little(0xa92b4efc) + little(0) + little(90)}),
		"md 1.0":               newSynthetic(size, map[int64]string{-8 * kibibyte: md1(size/512 - 16)}),
		"md 1.1":               newSynthetic(size, map[int64]string{0: md1(0)}),
		"md 1.2":               newSynthetic(size, map[int64]string{4 * kibibyte: md1(8)}),
		"zfs":                  newSynthetic(size, zfs),
		"gpt, 4 KiB sectors":   newSynthetic(size, map[int64]string{4096: "EFI PART"}),
		"gpt, only its backup": newSynthetic(size, map[int64]string{-512: "EFI PART"}),
		"protective MBR":       newSynthetic(size, map[int64]string{446: "\x00\x00\x02\x00\xee\xff\xff\xff\x01\x00\x00\x00\xff\xff\x00\x00", 510: "\x55\xaa"}),
		"boot signature only":  newSynthetic(size, map[int64]string{510: "\x55\xaa"}),
		"text":                 newSynthetic(size, map[int64]string{0: "precious"}),
		"bluestore":            newSynthetic(size, map[int64]string{0: "bluestore block device\n"}),
		"stratis":              newSynthetic(size, map[int64]string{516: "!Stra0tis\x86\xff\x02^\x41rh"}),
		"apfs":                 newSynthetic(size, map[int64]string{32: "NXSB"}),
		"reiserfs":             newSynthetic(size, map[int64]string{65588: "ReIsEr2Fs"}),
		"jfs":                  newSynthetic(size, map[int64]string{32768: "JFS1"}),
		"swap of 64 KiB pages": newSynthetic(size, map[int64]string{65526: "SWAPSPACE2"}),
		"a sector":             newSynthetic(512, map[int64]string{511: "\x01"}),
		"zeros":                newSynthetic(size, nil),
		"zeros of odd size":    newSynthetic(300*kibibyte+1, nil),
		"nothing":              newSynthetic(0, nil),
		"half":                 newSynthetic(size, map[int64]string{0: "csiemu half format\n", 1024: "anything"}),
		"half of another kind": newSynthetic(size, map[int64]string{0: "csiemu half format\n", 511: "\x01"}),
	}
}

// wanted is what Probe says of each fixture.
var wanted = map[string]string{
	"bcache": "bcache", "bcachecdev": "bcache", "dos": "dos", "erofs": "erofs", "exfat": "exfat",
	"ext2": "ext2", "ext3": "ext3", "extjournal": "jbd", "f2fs": "f2fs", "gpt": "gpt",
	"iso9660": "iso9660", "luks1": "luks", "luks2": "luks", "lvm2": "lvm2", "nilfs2": "nilfs2",
	"ntfs": "ntfs", "squashfs": "squashfs", "swap": "swap", "udf": "udf",
	"vfat12": "vfat", "vfat16": "vfat", "vfat32": "vfat",

	"md 0.90": "linux_raid_member", "md 0.90, odd size": "linux_raid_member", "md 1.0": "linux_raid_member",
	"md 1.1": "linux_raid_member", "md 1.2": "linux_raid_member", "zfs": "zfs_member",
	"gpt, 4 KiB sectors": "gpt", "gpt, only its backup": "gpt", "protective MBR": "dos",
	"boot signature only": "unknown", "text": "unknown", "bluestore": "ceph_bluestore",
	"stratis": "stratis", "apfs": "apfs", "reiserfs": "reiserfs", "jfs": "jfs",
	"swap of 64 KiB pages": "swap", "a sector": "unknown",
	"zeros": "", "zeros of odd size": "", "nothing": "", "half": "", "half of another kind": "unknown",
}

func TestProbeKnowsContent(t *testing.T) {
	t.Parallel()
	fixtures := loadFixtures(t)
	for name, f := range synthetics() {
		fixtures[name] = f
	}
	require.Len(t, fixtures, len(wanted))
	for name, f := range fixtures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, wanted, name)
			content := probe(t, f.write(t))
			require.Equal(t, wanted[name], content.Type)
			require.Equal(t, name == "half", content.Half)
			require.Equal(t, wanted[name] == "" && name != "half", content.Blank())
		})
	}
}

// blkid is what Probe's names and verdicts are measured by.
func TestProbeAgreesWithBlkid(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("blkid"); err != nil {
		t.Skip(err)
	}
	names := map[string]string{"LVM2_member": "lvm2", "crypto_LUKS": "luks"}
	fixtures := loadFixtures(t)
	for name, f := range synthetics() {
		switch name {
		case "half of another kind", "half", "text", "zeros", "a sector", "nothing", "zeros of odd size",
			"md 0.90", "md 0.90, odd size", "md 1.0", "md 1.1", "md 1.2", "bluestore":
			fixtures[name] = f
		}
	}
	for name, f := range fixtures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := f.write(t)
			values := blkid(t, path)
			kind := values["TYPE"]
			if kind == "" {
				kind = values["PTTYPE"]
			}
			if short, ok := names[kind]; ok {
				kind = short
			}
			content := probe(t, path)
			if content.Type == filesystem.TypeUnknown {
				content.Type = ""
			}
			require.Equal(t, kind, content.Type)
			if content.UUID != "" {
				require.Equal(t, values["UUID"], content.UUID)
			}
		})
	}
}

// blkid's own view of what this package makes.
func TestBlkidKnowsWhatFormatMakes(t *testing.T) {
	t.Parallel()
	maker := shared()
	for fs, size := range types {
		path := newFilesystem(t, maker, fs, size)
		values := blkid(t, path)
		require.Equal(t, string(fs), values["TYPE"])
		require.Equal(t, probe(t, path).UUID, values["UUID"])
	}
}

// blkid probes a file at a low level, without its cache.
func blkid(t *testing.T, path string) map[string]string {
	t.Helper()
	if _, err := exec.LookPath("blkid"); err != nil {
		t.Skip(err)
	}
	// It fails when it finds nothing.
	output, _ := exec.CommandContext(t.Context(), "blkid", "-p", "-o", "export", path).Output()
	values := map[string]string{}
	for line := range strings.Lines(string(output)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[key] = value
	}
	return values
}

// What is wrapped around a file system counts, not what its data begins with;
// and a file system counts more than old leftovers of a partition table.
func TestProbeTakesTheOuterContent(t *testing.T) {
	t.Parallel()
	image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
	outer := map[string]string{"md 1.0": "linux_raid_member", "gpt, only its backup": "ext4", "boot signature only": "ext4"}
	for name, want := range outer {
		f := synthetics()[name]
		data, err := os.ReadFile(image)
		require.NoError(t, err)
		copy(f.head[512:], data[512:])
		require.Equal(t, want, filesystem.Identify(f.head, f.tail, f.size).Type, name)
	}
}

// The tail of a file system is its data: what looks like RAID there is none
// unless it says that it belongs where it lies.
func TestProbeDoubtsWhatLiesInData(t *testing.T) {
	t.Parallel()
	image := newFilesystem(t, shared(), filesystem.Ext4, 16*mebibyte)
	patch(t, image, 16*mebibyte-8*kibibyte, []byte(little(0xa92b4efc)+little(1)+strings.Repeat("\x00", 136)+little(4711)))
	require.Equal(t, "ext4", probe(t, image).Type)
}

func TestProbeReadsOnly(t *testing.T) {
	t.Parallel()
	image := newImage(t, mebibyte)
	require.NoError(t, os.Chmod(image, 0o400))
	before, err := os.Stat(image)
	require.NoError(t, err)
	require.True(t, probe(t, image).Blank())
	after, err := os.Stat(image)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
}

func TestParseType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]filesystem.Type{"": filesystem.Ext4, "ext4": filesystem.Ext4, "xfs": filesystem.XFS, "btrfs": filesystem.Btrfs} {
		got, err := filesystem.ParseType(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, name := range []string{"ext3", "EXT4", "ntfs", " ext4", "ext4\x00"} {
		_, err := filesystem.ParseType(name)
		require.Error(t, err, "%q", name)
	}
}
