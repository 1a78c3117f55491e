package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/csiemu/csiemu/backends"
)

// Node is the node's half: it makes a directory for a file system and a file
// for a block device.
type Node struct{}

var (
	_ backends.Node          = (*Node)(nil)
	_ backends.EphemeralNode = (*Node)(nil)
)

// Stage checks the publish context and makes the staging directory.
func (n *Node) Stage(ctx context.Context, r backends.StageRequest) (backends.Staged, error) {
	size, err := strconv.ParseInt(r.PublishContext[sizeKey], 10, 64)
	if err != nil || r.PublishContext[attachmentKey] == "" {
		return backends.Staged{}, fmt.Errorf("the publish context is not one of this array's; attach the volume first: %w", backends.ErrNotFound)
	}
	s := backends.Staged{
		VolumeID: r.VolumeID, Path: r.Path, Block: r.Block, FSType: r.FSType, ReadOnly: r.ReadOnly,
		DeviceID: r.PublishContext[attachmentKey], SizeBytes: size,
	}
	return s, directory(ctx, r.Path)
}

// IsStaged asks whether the staging directory is there.
func (n *Node) IsStaged(_ context.Context, s backends.Staged) (bool, error) {
	return exists(s.Path)
}

// Unstage leaves the staging directory: it belongs to the caller.
func (n *Node) Unstage(context.Context, backends.Staged) error { return nil }

// Publish makes the target. One that exists already was the caller's idea.
func (n *Node) Publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if s.Block {
		return file(ctx, r.Path)
	}
	return directory(ctx, r.Path)
}

// IsPublished asks whether the target is there.
func (n *Node) IsPublished(_ context.Context, _ backends.Staged, path string) (bool, error) {
	return exists(path)
}

// Unpublish removes the target with what a workload wrote there. It follows no
// symbolic link, neither at the target nor below it.
func (n *Node) Unpublish(ctx context.Context, _ backends.Staged, path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove target: %w", err)
	}
	return nil
}

// Stats reports the size of the record: nothing is used of it.
func (n *Node) Stats(_ context.Context, s backends.Staged, _ string) (backends.Stats, error) {
	if s.Block {
		return backends.Stats{TotalBytes: s.SizeBytes, AvailableBytes: -1, UsedBytes: -1, Block: true}, nil
	}
	return backends.Stats{TotalBytes: s.SizeBytes, AvailableBytes: s.SizeBytes}, nil
}

// Expand has nothing to grow.
func (n *Node) Expand(_ context.Context, s backends.Staged) (int64, error) { return s.SizeBytes, nil }

// Hold has nothing to hold.
func (n *Node) Hold(ctx context.Context, _ backends.Staged, _ bool) (func() error, error) {
	return func() error { return nil }, ctx.Err()
}

// Recover has nothing to undo.
func (n *Node) Recover(context.Context, backends.Staged) error { return nil }

// Close has nothing to end.
func (n *Node) Close() error { return nil }

// ephemeralBytes is the size of an inline volume that names none.
const ephemeralBytes = 64 << 20

// MakeEphemeral makes a volume out of its request alone.
func (n *Node) MakeEphemeral(ctx context.Context, r backends.EphemeralRequest) (backends.Staged, error) {
	size := r.SizeBytes
	if size == 0 {
		size = ephemeralBytes
	}
	s := backends.Staged{VolumeID: r.VolumeID, Path: r.Dir, FSType: r.FSType, SizeBytes: size}
	return s, directory(ctx, r.Dir)
}

// RemoveEphemeral leaves the volume's directory: it belongs to the caller.
func (n *Node) RemoveEphemeral(context.Context, backends.Staged) error { return nil }

// checkPath refuses a path of which the last element is a symbolic link, or
// which leads through one that an unprivileged process could have made.
func checkPath(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		// Links in the root directory, such as /tmp or /var, are the system's.
		if parent := filepath.Dir(dir); parent == dir || filepath.Dir(parent) == parent && dir != path {
			return nil
		}
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at %q: %w", dir, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("path %q leads through the symbolic link %q; give the path behind it: %w", path, dir, backends.ErrInvalid)
		}
	}
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// directory makes the last element of path, unless it is a directory already.
func directory(ctx context.Context, path string) error {
	if err := errors.Join(ctx.Err(), checkPath(path)); err != nil {
		return err
	}
	err := os.Mkdir(path, 0o750)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := os.Lstat(path)
		if statErr == nil && info.IsDir() {
			return nil
		}
		return fmt.Errorf("make directory %q: something else is there: %w", path, backends.ErrExists)
	}
	return parentMissing(path, err)
}

// file makes the last element of path, unless it is a file already.
func file(ctx context.Context, path string) error {
	if err := errors.Join(ctx.Err(), checkPath(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := os.Lstat(path)
		if statErr == nil && info.Mode().IsRegular() {
			return nil
		}
		return fmt.Errorf("make file %q: something else is there: %w", path, backends.ErrExists)
	}
	if err != nil {
		return parentMissing(path, err)
	}
	return f.Close()
}

// parentMissing says whose fault it is that a path cannot be made.
func parentMissing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make %q: its parent directory is missing, which the caller makes: %w", path, backends.ErrPrecondition)
	}
	return err
}
