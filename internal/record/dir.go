package record

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// The names of the store. Those inside a record's directory start with a dot,
// but for the record itself.
const (
	lockFile   = "lock"    // in the store's directory
	damagedDir = "damaged" // in the store's directory

	recordFile  = "record.json"
	newFile     = ".record.new"     // a record that is being written, or an old one to write over
	deletedFile = ".record.deleted" // a record that was deleted: all beside it may go
)

// Options change how Open works.
type Options struct {
	// Sync flushes every change before a call returns, so that it survives a
	// lost machine. A killed process loses nothing either way.
	Sync bool
}

// Dir is a Store of plain files. One process has it open at a time.
type Dir struct {
	dir   string
	sync  bool
	lock  *os.File
	keys  keyedLocks
	flush flusher

	kindsMu sync.Mutex
	kinds   map[string]bool // whose directory is known to exist, flushed with Sync

	mu     sync.RWMutex // held for reading by every call, for writing by Close
	closed bool
}

var _ Store = (*Dir)(nil)

// Open takes the directory, making it (mode 0700) where it does not exist,
// removes the unfinished writes of a killed process and ends its unfinished
// deletions. ErrLocked, after a moment, names the process that has the
// directory. It takes some 10 µs for each record.
func Open(dir string, o Options) (_ *Dir, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	if err := makeDir(dir, o.Sync); err != nil {
		return nil, fmt.Errorf("make state directory %s: %w; choose a directory that this user may write, or make it beforehand", dir, explain(err))
	}
	lock, err := takeLock(filepath.Join(dir, lockFile))
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("open state directory %s: %w; stop that process or choose another directory", dir, err)
		}
		return nil, fmt.Errorf("lock state directory %s: %w; it must be a local directory that this user may write", dir, explain(err))
	}
	d := &Dir{dir: dir, sync: o.Sync, lock: lock, flush: newFlusher(), kinds: map[string]bool{}}
	if err := d.sweep(); err != nil {
		return nil, errors.Join(err, unlock(lock), lock.Close())
	}
	return d, nil
}

// makeDir is MkdirAll that also flushes the parent's entry.
func makeDir(dir string, sync bool) error {
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("a file is in the way")}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent, sync); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if sync {
		return syncDir(parent)
	}
	return nil
}

// Path is Store.Path.
func (d *Dir) Path(kind, id string) string { return filepath.Join(d.dir, kind, id) }

// Close is Store.Close: it waits for calls under way and gives the lock back.
// A second Close does nothing.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if err := errors.Join(unlock(d.lock), d.lock.Close()); err != nil {
		return fmt.Errorf("unlock state directory %s: %w", d.dir, err)
	}
	return nil
}

// enter holds the store open for one call on one record and makes calls on the
// same record wait for each other.
func (d *Dir) enter(ctx context.Context, kind, id string) (leave func(), err error) {
	if err := checkNames(kind, id); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.RLock()
	if d.closed {
		d.mu.RUnlock()
		return nil, ErrClosed
	}
	unlock, err := d.keys.lock(ctx, kind+"/"+id)
	if err != nil {
		d.mu.RUnlock()
		return nil, err
	}
	return func() { unlock(); d.mu.RUnlock() }, nil
}
