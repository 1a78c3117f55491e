package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Delete is Store.Delete. The record is first renamed to a name that says that
// everything beside it may go, so that a killed Delete is ended by the next
// Open; that name goes last.
func (d *Dir) Delete(ctx context.Context, kind, id string) error {
	leave, err := d.enter(ctx, kind, id)
	if err != nil {
		return fmt.Errorf("delete record %.80s/%.80s: %w", kind, id, err)
	}
	defer leave()
	if err := d.delete(ctx, d.Path(kind, id)); err != nil {
		return fmt.Errorf("delete record %s/%s in %s: %w", kind, id, d.dir, explain(err))
	}
	return nil
}

func (d *Dir) delete(ctx context.Context, dir string) error {
	err := rename(filepath.Join(dir, recordFile), filepath.Join(dir, deletedFile))
	switch {
	case err == nil:
		if d.sync {
			if err := d.flush.dirs(dir); err != nil {
				return err
			}
		}
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	default:
		return err
	}
	return removeDir(ctx, dir)
}

// removeDir removes a record's directory, the name of the deleted record last.
func removeDir(ctx context.Context, dir string) error {
	if err := empty(ctx, dir, deletedFile); err != nil {
		return err
	}
	if err := remove(filepath.Join(dir, deletedFile)); err != nil {
		return err
	}
	return remove(dir)
}

// remove is os.Remove for which gone is fine.
func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// batch is how many names are read at a time, which bounds the memory for a
// directory of any size.
const batch = 1024

// empty removes everything in dir but the name keep. A directory is entered
// only after it could not be removed because it is not empty: the kernel
// answers "busy" for one that something is mounted on, so what is mounted is
// never entered. Symbolic links are removed, not followed.
func empty(ctx context.Context, dir, keep string) error {
	for {
		names, err := readNames(dir)
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
			if err := removeTree(ctx, filepath.Join(dir, name)); err != nil {
				return err
			}
			removed++
		}
		// A directory that changes while it is read may hide names until it
		// is read again.
		if removed == 0 || len(names) < batch {
			return nil
		}
	}
}

func removeTree(ctx context.Context, path string) error {
	err := remove(path)
	if !errors.Is(err, fs.ErrExist) { // how package os says "not empty"
		return err
	}
	if err := empty(ctx, path, ""); err != nil {
		return err
	}
	return remove(path)
}

// readNames reads some names of a directory, all if they are fewer than batch.
func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	names, err := f.Readdirnames(batch)
	if err == io.EOF {
		err = nil
	}
	return names, errors.Join(err, f.Close())
}
