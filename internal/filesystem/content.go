//go:build linux

package filesystem

import "fmt"

// Content is what Probe found on a device.
type Content struct {
	// Type is what lies there, by the name that blkid has for it: ext4, xfs,
	// btrfs, ext2, ext3, swap, vfat, ntfs, zfs_member and so on, with three
	// shorter ones: lvm2, luks, and gpt or dos for a partition table. It is
	// "unknown" for a device without any known signature that is not blank, and
	// empty for one that is blank or Half.
	Type string
	// UUID is the file system's UUID where it has one that this package reads.
	UUID string
	// SizeBytes is the size by the superblock of ext, xfs and btrfs. The device
	// may be longer.
	SizeBytes int64
	// Clean is true when nothing has to be replayed or repaired before the file
	// system can be mounted read-only: the superblock of ext and btrfs says so
	// and its checksum is right. xfs keeps that knowledge in its log, which is
	// not read, so for xfs it is always false.
	Clean bool
	// Half is true for a format by this package that was interrupted. Nobody's
	// data is lost when it is formatted anew.
	Half bool

	geometry geometry
}

// TypeUnknown is the Type of a device that holds something without a signature.
const TypeUnknown = "unknown"

// NotBlankError is returned for a device that was to be formatted and holds
// something: a kind of ErrNotBlank.
type NotBlankError struct {
	// Content is what it holds.
	Content Content
}

func (e *NotBlankError) Error() string {
	return fmt.Sprintf("%v: it holds %s", ErrNotBlank, e.Content.Type)
}

// Unwrap makes errors.Is find ErrNotBlank.
func (e *NotBlankError) Unwrap() error { return ErrNotBlank }

// Blank is true when the device holds nothing, so that Format accepts it. A
// Half device is not blank, but Format accepts it too.
func (c Content) Blank() bool { return c.Type == "" && !c.Half }

// Fills is true when the file system is as large as it can become on a device of
// that many bytes, so that growing it would change nothing. Content without a
// size fills every device.
func (c Content) Fills(deviceBytes int64) bool {
	return c.SizeBytes >= c.geometry.usable(deviceBytes)
}
