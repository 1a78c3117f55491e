package kernel

import (
	"errors"
	"fmt"
)

// Feature is one ability of the kernel or one privilege of this process.
type Feature string

// The features, in the order in which Report lists them.
const (
	// Root is the full privilege that mounts and loop devices need:
	// CAP_SYS_ADMIN in the first user namespace.
	Root Feature = "root"
	// Loop is /dev/loop-control, which hands out loop devices.
	Loop Feature = "loop"
	// LoopConfigure is the LOOP_CONFIGURE ioctl (Linux 5.8).
	LoopConfigure Feature = "loop-configure"
	// Mknod is the right to make block device nodes and a place to use them.
	Mknod Feature = "mknod"
	// Ext4, XFS and Btrfs mean that the kernel mounts the file system and that
	// its mkfs is in PATH.
	Ext4  Feature = "ext4"
	XFS   Feature = "xfs"
	Btrfs Feature = "btrfs"
	// Tmpfs means that the kernel has tmpfs.
	Tmpfs Feature = "tmpfs"
	// FSMount is fsopen, fsconfig and fsmount (Linux 5.2).
	FSMount Feature = "fsmount"
	// MountSetattr is mount_setattr (Linux 5.12).
	MountSetattr Feature = "mount-setattr"
	// OpenAt2 is openat2 with RESOLVE_NO_SYMLINKS (Linux 5.6).
	OpenAt2 Feature = "openat2"
	// StatxMountID is statx with mount ids and the attribute of a mount's root
	// (Linux 5.8).
	StatxMountID Feature = "statx-mount-id"
	// Freeze is the FIFREEZE ioctl.
	Freeze Feature = "freeze"
	// CopyFileRange is copy_file_range within a file system.
	CopyFileRange Feature = "copy-file-range"
	// UserXattr means that tmpfs keeps user extended attributes (Linux 6.6).
	UserXattr Feature = "user-xattr"
	// SysResource is CAP_SYS_RESOURCE, which ext4's online growth asks for.
	SysResource Feature = "sys-resource"
	// BtrfsTempFSID means that two btrfs with the same UUID can be mounted at
	// once (Linux 6.7).
	BtrfsTempFSID Feature = "btrfs-temp-fsid"
	// FUSE is /dev/fuse.
	FUSE Feature = "fuse"
	// SELinux means that SELinux is on, so that context mount options work.
	SELinux Feature = "selinux"
	// ReflinkFeature means that files of the store share blocks. It depends on
	// a directory: ask Reflink, not Probe.
	ReflinkFeature Feature = "reflink"
	// DirectIOFeature means that files of the store can be read and written
	// around the page cache. It depends on a directory: ask DirectIO, not Probe.
	DirectIOFeature Feature = "direct-io"
)

// Features returns every feature that Probe knows, in a stable order.
func Features() []Feature {
	return []Feature{
		Root, Loop, LoopConfigure, Mknod, Ext4, XFS, Btrfs, Tmpfs, FSMount,
		MountSetattr, OpenAt2, StatxMountID, Freeze, CopyFileRange, UserXattr,
		SysResource, BtrfsTempFSID, FUSE, SELinux,
	}
}

// ErrNotSupported is what every *NotSupportedError is, for errors.Is.
var ErrNotSupported = errors.New("not supported by this machine")

// NotSupportedError says that this machine lacks a feature.
type NotSupportedError struct {
	// Feature is what is missing.
	Feature Feature
	// Reason is what the kernel answered, or what was not found.
	Reason string
	// Remedy is what the owner of the machine can do; empty if nothing helps.
	Remedy string
}

// Error names the feature, the reason and the remedy.
func (e *NotSupportedError) Error() string {
	text := fmt.Sprintf("%s is not supported here: %s", e.Feature, e.Reason)
	if e.Remedy != "" {
		text += " (" + e.Remedy + ")"
	}
	return text
}

// Is reports that the error is an ErrNotSupported.
func (e *NotSupportedError) Is(target error) bool { return target == ErrNotSupported }

// missing makes the error of a probe.
func missing(f Feature, remedy, format string, args ...any) error {
	return &NotSupportedError{Feature: f, Reason: fmt.Sprintf(format, args...), Remedy: remedy}
}
