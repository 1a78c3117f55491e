//go:build linux

package tmpfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// sourcePrefix marks what is mounted here as ours, in mountinfo.
const sourcePrefix = "csiemu:"

// mountAt mounts a tmpfs of size bytes at dir, which is made if it is missing.
func (b *Backend) mountAt(ctx context.Context, dir, id string, size int64) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	o, err := mount.ParseOptions([]string{sizeOption(size), "mode=0755"})
	if err != nil {
		return err
	}
	if err := mount.Mount(ctx, sourcePrefix+id, dir, fsType, o); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	b.keep(dir)
	return step.Done(ctx, "tmpfs.volume.mounted")
}

func sizeOption(size int64) string { return fmt.Sprintf("size=%d", size) }

// unmountAt takes away whatever is mounted at dir, and dir. Memory that is still
// in use goes with its last user.
func (b *Backend) unmountAt(ctx context.Context, dir string) error {
	_, missing := os.Lstat(dir)
	if err := unmountAll(dir); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.mounted, dir)
	b.mu.Unlock()
	if missing != nil {
		return nil
	}
	if err := step.Done(ctx, "tmpfs.volume.unmounted"); err != nil {
		return err
	}
	return mount.RemoveTarget(dir)
}

// maxStacked bounds how many mounts over each other are taken away.
const maxStacked = 8

func unmountAll(dir string) error {
	for range maxStacked {
		info, err := mount.Stat(dir)
		if errors.Is(err, backends.ErrNotFound) {
			return nil
		}
		if err != nil || !info.IsRoot {
			return err
		}
		if err := nodemount.Unmount(dir, func() bool { return true }); err != nil {
			return err
		}
	}
	return fmt.Errorf("unmount %s: more than %d mounts are over each other: %w", dir, maxStacked, backends.ErrPrecondition)
}

func (b *Backend) keep(dir string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mounted[dir] = true
}

// device is the number of the tmpfs that is mounted at dir.
// backends.ErrDataLoss is returned when there is none.
func device(dir string) (uint64, error) {
	info, err := mount.Stat(dir)
	if err != nil && !errors.Is(err, backends.ErrNotFound) {
		return 0, err
	}
	if err == nil && info.IsRoot && !info.Dead && nodemount.IsTmpfs(dir) {
		return info.Dev, nil
	}
	return 0, fmt.Errorf("no tmpfs is mounted at %s any more: the machine was restarted, or the mount is not propagated to this process: %w", dir, backends.ErrDataLoss)
}

// resize makes the tmpfs at dir size bytes large, and never smaller.
func resize(ctx context.Context, dir string, size int64) error {
	if _, err := device(dir); err != nil {
		return err
	}
	u, err := mount.StatFS(dir)
	if err != nil || u.Total >= size {
		return err
	}
	o, err := mount.ParseOptions([]string{sizeOption(size)})
	if err != nil {
		return err
	}
	if err := mount.Remount(ctx, dir, o); err != nil {
		return err
	}
	return step.Done(ctx, "tmpfs.volume.resized")
}
