package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Probe returns nil if this machine has the feature, and a *NotSupportedError
// if it has not. Only a context that is done already, and a name that is no
// feature, give other errors. Nothing is remembered between calls; a probe takes
// microseconds. It is safe for concurrent use.
func Probe(ctx context.Context, f Feature) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("probe kernel feature %s: %w", f, err)
	}
	switch f {
	case Root:
		return probeRoot()
	case Loop:
		return probeLoop()
	case LoopConfigure:
		return probeLoopConfigure()
	case Mknod:
		return probeMknod()
	case Ext4:
		return probeFilesystem(f, "mkfs.ext4", "e2fsprogs")
	case XFS:
		return probeFilesystem(f, "mkfs.xfs", "xfsprogs")
	case Btrfs:
		return probeFilesystem(f, "mkfs.btrfs", "btrfs-progs")
	case Tmpfs:
		return probeFilesystemType(f)
	case FSMount:
		return probeFSMount()
	case MountSetattr:
		return probeMountSetattr()
	case OpenAt2:
		return probeOpenAt2()
	case StatxMountID:
		return probeStatxMountID()
	case Freeze:
		return probeFreeze()
	case CopyFileRange:
		return probeCopyFileRange()
	case UserXattr:
		return probeUserXattr()
	case SysResource:
		return probeSysResource()
	case BtrfsTempFSID:
		return probeBtrfsTempFSID()
	case FUSE:
		return probeFUSE()
	case SELinux:
		return probeSELinux()
	}
	return fmt.Errorf("probe kernel feature %q: no such feature", f)
}

// remedyFor says what helps against an errno that a probe met.
func remedyFor(err error, kernelVersion string) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return rootRemedy
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL):
		return "needs Linux " + kernelVersion + " or newer, and a container runtime that lets the call pass"
	}
	return ""
}
