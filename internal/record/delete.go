package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/internal/rmtree"
	"github.com/csiemu/csiemu/internal/step"
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
	if err := step.Done(ctx, "record.marked"); err != nil {
		return err
	}
	return removeDir(ctx, dir)
}

// removeDir removes a record's directory, the name of the deleted record last,
// so that a killed Delete is seen for what it is until the directory is empty.
func removeDir(ctx context.Context, dir string) error {
	if err := rmtree.Empty(ctx, dir, deletedFile); err != nil {
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
