//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// Options describe a store of loop volumes.
type Options struct {
	// Dir is the store: an absolute directory that exists and under which the
	// directories of all volumes and snapshots lie, two levels down.
	Dir string
	// TempDir is where templates of file systems are made; empty means
	// os.TempDir().
	TempDir string
	// NodeDir is a directory, which exists, for device nodes that /dev does not
	// show, as in a container that has its own. Empty means that a missing node
	// is an error.
	NodeDir string
	// Sync makes bytes survive a lost machine, not only a killed process.
	Sync bool
	// Autoclear makes the kernel free each device when Close is called, or when
	// the process dies, and nothing has it open any more. Without it devices
	// stay for the next process to adopt.
	Autoclear bool
}

// Backend is the half of the array. Its methods may be called concurrently, as
// backends.Backend says.
type Backend struct {
	o       Options
	pool    *loopdev.Pool
	maker   *filesystem.Maker
	freezer *freeze.Freezer

	mu sync.Mutex
	// bound holds the devices of each volume, by volume id. Calls for one
	// volume come one at a time, so only the map needs the lock.
	bound map[string]*bound
	// names has the devices that there were when this process first looked, by
	// name; nil before.
	names map[string][]int
	// processes are the holders that this process started and did not reap.
	processes []*fusefile.Holder
}

var (
	_ backends.Backend       = (*Backend)(nil)
	_ backends.ExtentBackend = (*Backend)(nil)
	_ backends.Reopener      = (*Backend)(nil)

	_ backends.BreakableBackend = (*Backend)(nil)
)

// New opens the kernel's loop devices for a store. The error is a
// *kernel.NotSupportedError on machines without them.
func New(o Options) (*Backend, error) {
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("open loop store %q: not an absolute path: %w", o.Dir, backends.ErrInvalid)
	}
	if info, err := os.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("open loop store: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open loop store %s: not a directory: %w", o.Dir, backends.ErrInvalid)
	}
	pool, err := loopdev.NewPool(loopdev.Options{NodeDir: o.NodeDir})
	if err != nil {
		return nil, fmt.Errorf("open loop store %s: %w", o.Dir, err)
	}
	return &Backend{
		o:       o,
		pool:    pool,
		maker:   filesystem.NewMaker(filesystem.Options{TempDir: o.TempDir}),
		freezer: freeze.New(freeze.Options{Limit: backends.HoldLimit}),
		bound:   map[string]*bound{},
	}, nil
}

// Name is "loop".
func (b *Backend) Name() string { return "loop" }

// FreeBytes is the space that the file system of the store has left.
func (b *Backend) FreeBytes(context.Context) (int64, error) { return blockio.FreeBytes(b.o.Dir) }

// Close thaws what is frozen. Devices stay, unless Options.Autoclear is set:
// then each goes as soon as nothing has it open.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.freezer.Close()}
	for id, d := range b.bound {
		if d.device != nil {
			errs = append(errs, d.device.Release())
		}
		errs = append(errs, b.closeServing(id, d.serving))
	}
	return errors.Join(append(errs, b.closeProcesses(), b.pool.Close())...)
}
