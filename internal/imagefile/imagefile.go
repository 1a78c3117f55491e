//go:build linux

package imagefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

const (
	// Name is the name of an image in the directory of its volume. A file of
	// that name has all its bytes.
	Name = "image"
	// UnfinishedName is the name of an image while it is made. One that exists
	// when nothing makes it was left by a killed process.
	UnfinishedName = "image.tmp"
)

// Path is the path of the image in a directory.
func Path(dir string) string { return filepath.Join(dir, Name) }

// Make makes the image of dir, replacing one that is there: fill writes it under
// another name, and it is renamed when it is whole. With sync it survives a lost
// machine. After an error nothing new is left. The errors of a store that is
// full, or cannot have such a file, are backends.ErrExhausted and
// backends.ErrOutOfRange.
func Make(ctx context.Context, dir string, sync bool, fill func(*os.File) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	unfinished := filepath.Join(dir, UnfinishedName)
	f, err := os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return classified(err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, remove(unfinished))
		}
	}()
	if err := step.Done(ctx, "image.begun"); err != nil {
		return err
	}
	if err := fill(f); err != nil {
		return classified(err)
	}
	if err := step.Done(ctx, "image.filled"); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return classified(err)
		}
	}
	if err := os.Rename(unfinished, Path(dir)); err != nil {
		return classified(err)
	}
	if sync {
		if err := flushDir(dir); err != nil {
			return err
		}
	}
	if err := step.Done(ctx, "image.named"); err != nil {
		return errors.Join(err, remove(Path(dir)))
	}
	return nil
}

func flushDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open opens the image of dir, for writing too unless readOnly. It is
// backends.ErrDataLoss when there is none.
func Open(dir string, readOnly bool) (*os.File, error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(Path(dir), flag|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its bytes are lost: %w: %w", err, backends.ErrDataLoss)
	}
	return f, err
}

// Remove removes whatever of an image lies in dir.
func Remove(dir string) error { return errors.Join(remove(Path(dir)), RemoveUnfinished(dir)) }

// RemoveUnfinished removes what a killed Make left in dir.
func RemoveUnfinished(dir string) error { return remove(filepath.Join(dir, UnfinishedName)) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// classified gives the errors of a store that is full, or cannot have a file so
// large, their kind.
func classified(err error) error {
	switch {
	case errors.Is(err, backends.ErrExhausted):
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", err, backends.ErrExhausted)
	case errors.Is(err, unix.EFBIG):
		return fmt.Errorf("%w: %w", err, backends.ErrOutOfRange)
	}
	return err
}
