//go:build linux

package mount

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Propagates reports whether the mount that holds path is shared: whether what
// is mounted below path is also seen in other mount namespaces that have a peer
// or a slave of it, such as those of the kubelet and of pods. The errors are
// those of Stat.
func Propagates(path string) (bool, error) {
	shared, err := propagates(path)
	if err != nil {
		return false, fmt.Errorf("ask propagation at %s: %w", path, err)
	}
	return shared, nil
}

func propagates(path string) (bool, error) {
	l, err := openPlace(path)
	if err != nil {
		return false, err
	}
	defer l.close()
	var stat unix.Statx_t
	if err := l.statMountID(&stat, unix.STATX_MNT_ID_UNIQUE); err != nil {
		return false, err
	}
	if stat.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		if shared, err := isSharedMount(stat.Mnt_id); err == nil {
			return shared, nil
		}
		// Refused or unknown: sandboxes filter calls that they do not know.
	}
	return l.isSharedInMountInfo()
}

func (l place) statMountID(stat *unix.Statx_t, which int) error {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(l.dir, l.name, flags, which, stat); err != nil {
		return pathError(err)
	}
	return nil
}

// isSharedInMountInfo finds the mount of the place by its id of the old kind.
func (l place) isSharedInMountInfo() (bool, error) {
	var stat unix.Statx_t
	if err := l.statMountID(&stat, unix.STATX_MNT_ID); err != nil {
		return false, err
	}
	entries, err := listMounts()
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.ID == stat.Mnt_id {
			return e.Shared(), nil
		}
	}
	return false, fmt.Errorf("mount %d is not listed", stat.Mnt_id)
}

// isSharedMount asks statmount(2), Linux 6.8, for which x/sys has no wrapper.
// The structs are those of include/uapi/linux/mount.h.
func isSharedMount(uniqueID uint64) (bool, error) {
	const wanted = 2 // STATMOUNT_MNT_BASIC
	request := struct {
		size, namespace uint32
		mountID, wanted uint64
	}{size: 24, mountID: uniqueID, wanted: wanted} // MNT_ID_REQ_SIZE_VER0
	var answer struct {
		_           [8]byte
		mask        uint64
		_           [56]byte // from the device number to the attributes
		propagation uint64
		_           [432]byte // what was and will be added behind
	}
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)),
		uintptr(unsafe.Pointer(&answer)), unsafe.Sizeof(answer), 0, 0, 0)
	if errno != 0 {
		return false, errno
	}
	if answer.mask&wanted == 0 {
		return false, unix.EOPNOTSUPP
	}
	return answer.propagation&unix.MS_SHARED != 0, nil
}
