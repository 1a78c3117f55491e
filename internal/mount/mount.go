//go:build linux

package mount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// Mount mounts the file system of source, a block device or any word where the
// type has no device, on the directory target, above whatever is mounted there
// already: ask Stat first. With ro both the file system and the mount are
// read-only.
//
// The mount is seen at target when Mount returns nil, and nowhere otherwise;
// backends.ErrAborted is returned when the target was replaced meanwhile.
// backends.ErrInvalid is returned for paths with symbolic links and for options
// that the file system does not take, backends.ErrNotFound when source or target
// is missing, backends.ErrExists when target is no directory, ErrBusy when
// source is in use otherwise, backends.ErrPrecondition when it is write-protected
// and ro was not asked for. The call into the file system, which may replay a
// journal, cannot be interrupted; a context that ends meanwhile undoes it.
func Mount(ctx context.Context, source, target, fsType string, o Options) error {
	if err := mountOn(ctx, source, target, fsType, o); err != nil {
		return fmt.Errorf("mount %s %s on %s: %w", fsType, source, target, err)
	}
	return nil
}

func mountOn(ctx context.Context, source, target, fsType string, o Options) error {
	l, err := openPlace(target)
	if err != nil {
		return err
	}
	defer l.close()
	// Asked before the work, and by attach again.
	if isDir, err := isDirectory(l.dir, l.name); err != nil {
		return err
	} else if !isDir {
		return fmt.Errorf("target is not a directory: %w", backends.ErrExists)
	}
	c, err := createdContext(ctx, source, fsType, o)
	if err != nil {
		return err
	}
	if err = ctx.Err(); err == nil {
		err = withoutFork(func() error { return c.mountAt(l, o) })
	}
	if err != nil {
		c.close()
		return err
	}
	c.closeMounted()
	return nil
}

// mountAt mounts the created file system. It is called withoutFork.
func (c fsContext) mountAt(l place, o Options) error {
	mnt, err := c.mount(o)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	return attach(mnt, l)
}

// Replay mounts the file system of source where nobody can see it and unmounts
// it again, so that its journal is replayed. It returns the errors of Mount that
// concern the source and the options. The device is released when it returns nil;
// ErrBusy is returned when it is mounted, or used exclusively, elsewhere.
func Replay(ctx context.Context, source, fsType string, o Options) error {
	if err := replay(ctx, source, fsType, o); err != nil {
		return fmt.Errorf("replay %s on %s: %w", fsType, source, err)
	}
	return nil
}

func replay(ctx context.Context, source, fsType string, o Options) error {
	// The kernel replays while it makes the file system. With no mount of it, the
	// context is all that holds it.
	c, err := createdContext(ctx, source, fsType, o)
	if err != nil {
		return err
	}
	c.closeUnmounted()
	return classified(patiently(ctx, func() error { return withoutFork(func() error { return claim(source) }) }))
}

// claim asks for a block device for itself alone, for a moment. Its error is
// EBUSY or nil: a source that is no device cannot be claimed.
func claim(source string) error {
	fd, err := unix.Open(source, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

// createdContext makes the file system of source; mounts of it come next.
func createdContext(ctx context.Context, source, fsType string, o Options) (fsContext, error) {
	if err := ctx.Err(); err != nil {
		return fsContext{}, err
	}
	c, err := openContext(fsType)
	if err != nil {
		return fsContext{}, err
	}
	if err := c.create(source, o); err != nil {
		c.close()
		return fsContext{}, err
	}
	return c, nil
}

// attach moves a detached mount onto what lies at the place and makes sure that
// it is seen under the path of the place. A directory that was renamed since it
// was opened takes the mount along; it is undone then. It is called withoutFork;
// the path that it walks was walked just before.
func attach(mnt int, l place) error {
	target, err := l.open(0)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(mnt, "", target, "", byDescriptors); err != nil {
		return fmt.Errorf("attach mount: %w", unlessKindsDiffer(mnt, target, err))
	}
	seen, err := isSeenAt(mnt, l.path)
	if err == nil && seen {
		return nil
	}
	if undoErr := unix.Unmount(descriptorPath(mnt), unix.MNT_DETACH); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("undo mount: %w", undoErr))
	}
	if err == nil {
		err = fmt.Errorf("target was replaced while it was mounted on: %w", backends.ErrAborted)
	}
	return err
}

// unlessKindsDiffer explains the kernel's bare EINVAL or ENOTDIR of an attempt
// to put a directory on a file or the other way round.
func unlessKindsDiffer(mnt, target int, err error) error {
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTDIR) {
		return classified(err)
	}
	mntDir, mntErr := isDirectory(mnt, "")
	targetDir, targetErr := isDirectory(target, "")
	switch {
	case mntErr != nil || targetErr != nil || mntDir == targetDir:
		return err
	case targetDir:
		return fmt.Errorf("target is a directory where a file is wanted: %w", backends.ErrExists)
	}
	return fmt.Errorf("target is a file where a directory is wanted: %w", backends.ErrExists)
}

// isSeenAt reports whether the mount whose root is open as mnt is the one that
// is seen at path.
func isSeenAt(mnt int, path string) (bool, error) {
	l, err := openPlace(path)
	if err != nil {
		return false, err
	}
	defer l.close()
	// Nothing is asked of the file system, whose server may not answer yet.
	const flags, wanted = unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID | statxMountIDUnique
	var ours, seen unix.Statx_t
	if err := unix.Statx(mnt, "", flags|unix.AT_EMPTY_PATH, wanted, &ours); err != nil {
		return false, fmt.Errorf("look at mount: %w", err)
	}
	if err := unix.Statx(l.dir, l.name, flags|unix.AT_SYMLINK_NOFOLLOW, wanted, &seen); err != nil {
		return false, fmt.Errorf("look at target: %w", err)
	}
	return ours.Mnt_id == seen.Mnt_id && seen.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// isDirectory reports whether name in an open directory, or what is open if name
// is empty, is a directory, asking nothing of its file system. A symbolic link is
// an error.
func isDirectory(fd int, name string) (bool, error) {
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	var stat unix.Statx_t
	if err := unix.Statx(fd, name, flags, unix.STATX_TYPE, &stat); err != nil {
		return false, pathError(err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return false, pathError(unix.ELOOP)
	}
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
