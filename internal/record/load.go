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

// Load is Store.Load. Records that are put while it runs may be missed.
func (d *Dir) Load(ctx context.Context, kind string, each func(id string, data []byte) error) ([]Damaged, error) {
	if err := checkKind(kind); err != nil {
		return nil, fmt.Errorf("load records: %w", err)
	}
	kindDir := filepath.Join(d.dir, kind)
	entries, err := os.ReadDir(kindDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load records of %s: %w", kindDir, err)
	}
	var damaged []Damaged
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || !validName(id) {
			damaged = append(damaged, Damaged{
				Kind: kind, ID: id, Path: filepath.Join(kindDir, id),
				Err: fmt.Errorf("it is no directory of a record: %w", ErrForeign),
			})
			continue
		}
		found, err := d.loadOne(ctx, kind, id, each)
		if err != nil {
			return damaged, fmt.Errorf("load record %s/%s: %w", kind, id, err)
		}
		if found.Err != nil {
			damaged = append(damaged, found)
		}
	}
	return damaged, nil
}

// errGone is for a directory that was empty.
var errGone = errors.New("nothing was there")

// loadOne gives one record to each, or says what is wrong with it.
func (d *Dir) loadOne(ctx context.Context, kind, id string, each func(id string, data []byte) error) (Damaged, error) {
	data, path, err := d.read(ctx, kind, id)
	if ctx.Err() != nil {
		return Damaged{}, ctx.Err()
	}
	if err == nil {
		// No lock is held, so that each may put and delete records.
		err = each(id, data)
	}
	found := Damaged{Kind: kind, ID: id, Path: path, Err: err}
	switch {
	case errors.Is(err, errGone):
		return Damaged{}, nil
	case err == nil, errors.Is(err, ErrNewer):
		return found, nil
	case errors.Is(err, ErrOrphan) && wasDeleted(path):
		// The next Open tries again to end the Delete.
		return found, nil
	case isDamage(err):
		moved, err := d.setAside(ctx, kind, id)
		if err != nil {
			found.Err = errors.Join(found.Err, err)
		}
		found.MovedTo = moved
		return found, nil
	default:
		return found, err
	}
}

// wasDeleted says whether what lies in a record's directory is what a Delete has
// left.
func wasDeleted(path string) bool {
	_, err := os.Lstat(filepath.Join(path, deletedFile))
	return err == nil
}

func (d *Dir) read(ctx context.Context, kind, id string) (data []byte, path string, err error) {
	leave, err := d.enter(ctx, kind, id)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	path = d.Path(kind, id)
	b, err := readRecord(filepath.Join(path, recordFile))
	if errors.Is(err, ErrOrphan) && os.Remove(path) == nil {
		// It was made for a first Put that never came to its rename.
		return nil, path, errGone
	}
	if err != nil {
		return nil, path, err
	}
	data, err = decode(kind, id, b)
	return data, path, err
}

// readRecord reads the file of a record.
func readRecord(name string) ([]byte, error) {
	f, err := openRecord(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrOrphan
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, ErrDamaged)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is no regular file but %v: %w", info.Mode(), ErrDamaged)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than a record holds: %w", info.Size(), ErrDamaged)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return b, nil
}

// setAside moves a record's directory, with the bytes that lie in it, to where
// nothing reads it.
func (d *Dir) setAside(ctx context.Context, kind, id string) (string, error) {
	leave, err := d.enter(ctx, kind, id)
	if err != nil {
		return "", err
	}
	defer leave()
	damaged := filepath.Join(d.dir, damagedDir)
	if err := os.Mkdir(damaged, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("set it aside: %w", err)
	}
	for n := 1; ; n++ {
		to := filepath.Join(damaged, fmt.Sprintf("%s-%s-%d", kind, id, n))
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(d.Path(kind, id), to); err != nil {
			return "", fmt.Errorf("set it aside: %w", err)
		}
		if d.sync {
			err = errors.Join(syncDir(damaged), syncDir(filepath.Join(d.dir, kind)), syncDir(d.dir))
		}
		return to, err
	}
}
