// Package rmtree removes a directory with what is in it, and nothing else,
// however hostile that is.
//
// It differs from os.RemoveAll in that it never enters what is mounted in the
// tree: a directory is entered only after it could not be removed because it is
// not empty, and the kernel answers "busy" for one that something is mounted on.
// Like it, it removes symbolic links and does not follow them, also when
// somebody puts one in the place of a directory meanwhile. It works on every
// system.
package rmtree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Remove removes the directory dir with everything in it. Gone already is no
// error; a symbolic link or a file in its place is one. Where it fails halfway,
// as when ctx ends, it can be called again.
func Remove(ctx context.Context, dir string) error {
	_, err := lookAt(dir)
	if err == nil {
		err = os.Remove(dir)
	}
	if errors.Is(err, fs.ErrExist) { // how package os says "not empty"
		err = Empty(ctx, dir, "")
		if err == nil {
			err = os.Remove(dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func lookAt(dir string) (fs.FileInfo, error) {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("remove %s: it is no directory but %v", dir, info.Mode().Type())
	}
	return info, err
}

// Empty removes everything in the directory dir but the entry called keep, which
// may be empty. It asks nobody whether dir itself is a mount. The errors are
// those of Remove.
func Empty(ctx context.Context, dir, keep string) error {
	info, err := lookAt(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return fmt.Errorf("remove %s: something else came in its place", dir)
	}
	return empty(ctx, root, keep)
}

// batch is how many names are read at a time, which bounds the memory for a
// directory of any size.
const batch = 1024

func empty(ctx context.Context, root *os.Root, keep string) error {
	for {
		names, err := readNames(root)
		if err != nil {
			return err
		}
		removed := 0
		for _, name := range names {
			if name == keep {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := removeIn(ctx, root, name); err != nil {
				return err
			}
			removed++
		}
		// A directory that changes while it is read may hide names until it is
		// read again.
		if removed == 0 || len(names) < batch {
			return nil
		}
	}
}

func removeIn(ctx context.Context, root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, fs.ErrExist) {
		if err := enter(ctx, root, name); err != nil {
			return err
		}
		err = root.Remove(name)
	}
	return inFull(root, name, err)
}

func enter(ctx context.Context, root *os.Root, name string) error {
	sub, err := root.OpenRoot(name)
	if err != nil {
		return inFull(root, name, err)
	}
	defer sub.Close()
	return empty(ctx, sub, "")
}

// inFull gives the whole path to an error of a Root, which names its files from
// itself on. Gone is fine.
func inFull(root *os.Root, name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	return &fs.PathError{Op: "remove", Path: filepath.Join(root.Name(), name), Err: err}
}

// readNames reads some names of a directory, all if they are fewer than batch.
func readNames(root *os.Root) ([]string, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(batch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, errors.Join(err, f.Close())
}
