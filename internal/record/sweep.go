package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sweep removes what killed writes and deletions left.
func (d *Dir) sweep() error {
	kinds, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("read state directory %s: %w", d.dir, err)
	}
	for _, k := range kinds {
		if !k.IsDir() || checkKind(k.Name()) != nil {
			continue
		}
		kindDir := filepath.Join(d.dir, k.Name())
		ids, err := os.ReadDir(kindDir)
		if err != nil {
			return fmt.Errorf("read state directory %s: %w", kindDir, err)
		}
		for _, e := range ids {
			if e.IsDir() && validName(e.Name()) {
				if err := sweepOne(filepath.Join(kindDir, e.Name())); err != nil {
					return fmt.Errorf("clear state directory %s of what a killed process left: %w", d.dir, explain(err))
				}
			}
		}
		if d.sync {
			// The killed process may have made entries that it did not flush.
			if err := syncDir(kindDir); err != nil {
				return fmt.Errorf("flush state directory %s: %w", kindDir, err)
			}
		}
	}
	return nil
}

// sweepOne looks by name, which is much faster than reading the directory, and
// touches nothing but what carries a name of the store's own: other directories
// may lie beside those of records.
func sweepOne(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, newFile)); err == nil {
		if err := remove(filepath.Join(dir, newFile)); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, recordFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, deletedFile)); err == nil {
		// What cannot be removed, such as a mount that is left, stays: Load
		// reports it as an orphan, and a new Delete goes on.
		_ = removeDir(context.Background(), dir)
	}
	return nil
}
