//go:build linux

package treecopy

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// CopyTree copies everything in srcDir, and the attributes of srcDir itself, to
// dstDir, an empty directory outside srcDir. Copied are directories, regular files with their
// holes, symbolic links, FIFOs, sockets and device nodes; their owners, modes
// (set-id and sticky bits too), access and modification times in nanoseconds;
// all extended attributes, so ACLs and file capabilities; and which names are
// hard links of one file. Not copied are inode flags (chattr) and birth times.
// The source is not changed, not even its access times.
//
// The tree must be held still; ErrChanged is returned where it is noticed that
// it was not. When the destination is full, the error wraps
// backends.ErrExhausted. The privilege to mount (CAP_SYS_ADMIN) and /proc are
// needed; without the first, the error is a *kernel.NotSupportedError. After any
// error, which includes that of ctx, dstDir holds an unfinished copy.
func CopyTree(ctx context.Context, dstDir, srcDir string) error {
	if err := copyTree(ctx, dstDir, srcDir); err != nil {
		if errors.Is(err, unix.ENOSPC) && !errors.Is(err, backends.ErrExhausted) {
			err = fmt.Errorf("%w: %w", backends.ErrExhausted, err)
		}
		return fmt.Errorf("copy tree %s to %s: %w", srcDir, dstDir, err)
	}
	return nil
}

func copyTree(ctx context.Context, dstDir, srcDir string) (err error) {
	mount, err := openDetached(srcDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.Close()) }()

	root, err := openRoot(mount, dstDir)
	if err != nil {
		return err
	}
	w := walk{stack: []*directory{root}}
	defer func() { err = errors.Join(err, w.close()) }()

	if w.links.root, err = openDirectory(int(root.dst.Fd()), "."); err != nil {
		return err
	}
	return w.run(ctx)
}

// openDetached opens dir on a private mount of its own, which has nothing
// mounted over its directories and is read-only, so that not even access times
// change. The mount goes with the descriptor.
func openDetached(dir string) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW)
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, flags)
	if err != nil {
		return nil, privileged(os.NewSyscallError("open_tree", err))
	}
	mount := os.NewFile(uintptr(fd), dir)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY,
		Propagation: unix.MS_PRIVATE,
	})
	if err != nil {
		return nil, errors.Join(privileged(os.NewSyscallError("mount_setattr", err)), mount.Close())
	}
	return mount, nil
}

// privileged says which ability is missing, if that is what err means.
func privileged(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &kernel.NotSupportedError{Feature: kernel.Root, Reason: err.Error(), Remedy: "run with CAP_SYS_ADMIN"}
	case errors.Is(err, unix.ENOSYS):
		return &kernel.NotSupportedError{Feature: kernel.MountSetattr, Reason: err.Error(), Remedy: "use Linux 5.12 or newer"}
	}
	return err
}

func openRoot(mount *os.File, dstDir string) (*directory, error) {
	src, err := openDirectory(int(mount.Fd()), ".")
	if err != nil {
		return nil, err
	}
	dst, err := openDirectory(unix.AT_FDCWD, dstDir)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	root, err := newDirectory("", src, dst)
	if err != nil {
		return nil, err
	}
	// New files would inherit a default ACL of the destination.
	err = unix.Removexattr(procPath(dst, "."), defaultACL)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(os.NewSyscallError("removexattr", err), root.close())
	}
	return root, nil
}
