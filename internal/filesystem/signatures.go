//go:build linux

package filesystem

// signature is how one kind of content is recognised.
type signature struct {
	name    string
	matches func(image) bool
	// describe adds what is known beside the name; it may refine the name.
	describe func(image, *Content)
}

// signatures is in order of precedence. What is put around other content comes
// first, then the file systems that this package makes, then all others, and
// partition tables last, because many boot sectors look like one. Nobody writes
// to it. The offsets and magics are those of libblkid and of the kernel's
// headers.
var signatures = [...]signature{
	{"luks", magic(0, "LUKS\xba\xbe"), describeLUKS},
	{"lvm2", isLVM2, nil},
	{"linux_raid_member", isMD, nil},
	{"bcache", magic(4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"), nil},
	{"bcachefs", magic(4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"), nil},
	{"zfs_member", isZFS, nil},
	{"BitLocker", magic(3, "-FVE-FS-"), nil},
	{"vdo", magic(0, "dmvdo001"), nil},
	{"ceph_bluestore", magic(0, "bluestore block device"), nil},
	{"stratis", isStratis, nil},

	{"ext4", isExt, describeExt},
	{"xfs", isXFS, describeXFS},
	{"btrfs", isBtrfs, describeBtrfs},

	{"swap", isSwap, nil},
	{"iso9660", magic(32769, "CD001"), nil},
	{"udf", isUDF, nil},
	{"squashfs", anyOf(magic(0, "hsqs"), magic(0, "sqsh")), nil},
	{"erofs", magic(1024, "\xe2\xe1\xf5\xe0"), nil},
	{"f2fs", magic(1024, "\x10\x20\xf5\xf2"), nil},
	{"nilfs2", magic(1030, "\x34\x34"), nil},
	{"cramfs", anyOf(magic(0, "\x45\x3d\xcd\x28"), magic(0, "\x28\xcd\x3d\x45")), nil},
	{"romfs", magic(0, "-rom1fs-"), nil},
	{"jfs", magic(32768, "JFS1"), nil},
	{"reiserfs", anyOf(magic(65588, "ReIsErFs"), magic(65588, "ReIsEr2Fs"), magic(65588, "ReIsEr3Fs")), nil},
	{"gfs2", magic(65536, "\x01\x16\x19\x70\x00\x00\x00\x01"), nil},
	{"ocfs2", anyOf(magic(1024, "OCFSV2"), magic(2048, "OCFSV2"), magic(4096, "OCFSV2"), magic(8192, "OCFSV2")), nil},
	{"apfs", magic(32, "NXSB"), nil},
	{"hfsplus", anyOf(magic(1024, "H+\x00\x04"), magic(1024, "HX\x00\x05")), nil},
	{"hfs", magic(1024, "BD"), nil},
	{"exfat", magic(3, "EXFAT   "), nil},
	{"ntfs", magic(3, "NTFS    "), nil},
	{"ReFS", magic(3, "ReFS\x00\x00\x00\x00"), nil},
	{"vfat", isFAT, nil},

	{"gpt", isGPT, nil},
	{"dos", isDOS, nil},
}

// magic matches bytes at an offset.
func magic(offset int64, bytes string) func(image) bool {
	return func(im image) bool { return im.has(offset, bytes) }
}

// anyOf matches where one of its parts does.
func anyOf(matches ...func(image) bool) func(image) bool {
	return func(im image) bool {
		for _, match := range matches {
			if match(im) {
				return true
			}
		}
		return false
	}
}

// isSwap looks at the end of the first page, whatever the machine's page size.
func isSwap(im image) bool {
	for page := int64(4096); page <= 65536; page *= 2 {
		if im.has(page-10, "SWAPSPACE2") || im.has(page-10, "SWAP-SPACE") {
			return true
		}
	}
	return false
}

// isUDF looks at the volume recognition sequence, whose first descriptor may be
// of ISO 9660 (which is asked before).
func isUDF(im image) bool {
	if !im.has(32769, "BEA01") {
		return false
	}
	for offset := int64(34817); offset < 65536; offset += 2048 {
		if im.has(offset, "NSR02") || im.has(offset, "NSR03") {
			return true
		}
	}
	return false
}

// isFAT looks at both places of the type's name, and at the boot signature.
func isFAT(im image) bool {
	if !im.has(510, "\x55\xaa") {
		return false
	}
	for _, name := range []string{"FAT32   ", "FAT16   ", "FAT12   ", "FAT     ", "MSDOS"} {
		if im.has(82, name) || im.has(54, name) {
			return true
		}
	}
	return false
}
