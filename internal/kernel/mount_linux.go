package kernel

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// detachedTmpfs mounts a tmpfs that nobody else can see. It goes when the
// descriptor is closed.
func detachedTmpfs() (fd int, err error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen tmpfs: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("fsconfig tmpfs: %w", err)
	}
	fd, err = unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fsmount tmpfs: %w", err)
	}
	return fd, nil
}

func probeFSMount() error {
	fd, err := detachedTmpfs()
	if err != nil {
		return missing(FSMount, remedyFor(err, "5.2"), "%v", err)
	}
	return unix.Close(fd)
}

func probeMountSetattr() error {
	fd, err := detachedTmpfs()
	if err != nil {
		return missing(MountSetattr, remedyFor(err, "5.12"), "%v", err)
	}
	defer unix.Close(fd)
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return missing(MountSetattr, remedyFor(err, "5.12"), "mount_setattr: %v", err)
	}
	return nil
}

// probeFreeze asks for the ioctl on a private tmpfs, which cannot be frozen:
// EOPNOTSUPP proves that the kernel knows the ioctl and lets us use it.
func probeFreeze() error {
	fd, err := detachedTmpfs()
	if err != nil {
		return missing(Freeze, remedyFor(err, "5.2"), "%v", err)
	}
	defer unix.Close(fd)
	// A detached mount's descriptor is an O_PATH one, which takes no ioctl.
	root, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return missing(Freeze, "", "open a private tmpfs: %v", err)
	}
	defer unix.Close(root)
	const fifreeze, fithaw = 0xc0045877, 0xc0045878 // _IOWR('X', 119 and 120, int)
	var unused int32
	switch err := ioctlPointer(uintptr(root), fifreeze, unsafe.Pointer(&unused)); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return missing(Freeze, remedyFor(err, "2.6.29"), "FIFREEZE: %v", err)
	}
	// A kernel that freezes tmpfs: ours must be thawed or closing it hangs.
	if err := ioctlPointer(uintptr(root), fithaw, unsafe.Pointer(&unused)); err != nil {
		return missing(Freeze, "", "FITHAW: %v", err)
	}
	return nil
}

func probeOpenAt2() error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &how)
	if err != nil {
		return missing(OpenAt2, remedyFor(err, "5.6"), "openat2: %v", err)
	}
	return unix.Close(fd)
}

func probeStatxMountID() error {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &stat); err != nil {
		return missing(StatxMountID, remedyFor(err, "5.8"), "statx: %v", err)
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 || stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return missing(StatxMountID, "needs Linux 5.8 or newer", "statx gives no mount id")
	}
	return nil
}
