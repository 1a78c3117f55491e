package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/internal/step"
)

// Put is Store.Put: it writes a new file and renames it over the old one.
//
// With Sync the file is flushed before the rename and the directories after it.
//
// Without Sync the two files change places where the system can do that, so the
// old one is there to be written by the next Put. Nobody can see the difference
// after a killed process, and on ext4 it is several times faster: a rename over
// a file starts the write of the new one (mount option auto_da_alloc), and each
// file removed makes the search for a free inode longer for five seconds.
func (d *Dir) Put(ctx context.Context, kind, id string, v any) error {
	leave, err := d.enter(ctx, kind, id)
	if err != nil {
		return fmt.Errorf("write record %.80s/%.80s: %w", kind, id, err)
	}
	defer leave()
	b, err := encode(kind, id, v)
	if err != nil {
		return err
	}
	if err := d.put(ctx, kind, d.Path(kind, id), b); err != nil {
		return fmt.Errorf("write record %s/%s in %s: %w", kind, id, d.dir, explain(err))
	}
	return nil
}

func (d *Dir) put(ctx context.Context, kind, dir string, b []byte) error {
	from, to := filepath.Join(dir, newFile), filepath.Join(dir, recordFile)
	f, made, err := d.create(kind, dir, from)
	if err != nil {
		return err
	}
	err = fill(f, b)
	if err == nil && d.sync {
		err = d.flush.file(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = step.Done(ctx, "record.written")
	}
	if err == nil {
		if d.sync {
			err = rename(from, to)
		} else {
			err = replace(from, to)
		}
	}
	if err != nil {
		// What was not renamed nobody needs. A directory that was made for it
		// goes too, unless something lies in it already.
		_ = os.Remove(from)
		if made {
			_ = os.Remove(dir)
		}
		return err
	}
	switch {
	case d.sync && made:
		return d.flush.dirs(dir, filepath.Dir(dir))
	case d.sync:
		return d.flush.dirs(dir)
	default:
		return nil
	}
}

// fill writes the whole content of a file that may have had another. Truncating
// it on opening would make ext4 write it out on closing.
func fill(f *os.File, b []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > int64(len(b)) {
		if err := f.Truncate(int64(len(b))); err != nil {
			return err
		}
	}
	_, err = f.Write(b)
	return err
}

// create opens the new file. The directory is there already but for the first
// Put of a record, so it is made only when the file cannot be.
func (d *Dir) create(kind, dir, name string) (f *os.File, made bool, err error) {
	f, err = openNew(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, false, err
	}
	if err := d.makeKind(kind); err != nil {
		return nil, false, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	f, err = openNew(name)
	if err != nil {
		_ = os.Remove(dir)
	}
	return f, true, err
}

// makeKind makes the directory of a kind, once, before any record lies in it.
func (d *Dir) makeKind(kind string) error {
	d.kindsMu.Lock()
	defer d.kindsMu.Unlock()
	if d.kinds[kind] {
		return nil
	}
	if err := os.Mkdir(filepath.Join(d.dir, kind), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if d.sync {
		if err := syncDir(d.dir); err != nil {
			return err
		}
	}
	d.kinds[kind] = true
	return nil
}

func openNew(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
}
