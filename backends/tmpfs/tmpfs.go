//go:build linux

package tmpfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/mount"
)

// Options describe a store of tmpfs volumes.
type Options struct {
	// Dir is the store: an absolute directory that exists and under which the
	// directories of all volumes and snapshots lie, two levels down.
	Dir string
	// NodeDir is a directory, which exists, for device nodes that /dev does not
	// show. Empty means that a missing node is an error.
	NodeDir string
	// Autoclear makes Close take all volumes away. Without it they stay for the
	// next process to adopt.
	Autoclear bool
}

// Backend is the half of the array. Its methods may be called concurrently, as
// backends.Backend says.
type Backend struct {
	o Options
	// loops serves the images of raw block volumes.
	loops *loop.Backend

	mu sync.Mutex
	// mounted are the mount points that are there.
	mounted map[string]bool
}

var (
	_ backends.Backend       = (*Backend)(nil)
	_ backends.Reopener      = (*Backend)(nil)
	_ backends.ExtentBackend = (*Backend)(nil)
)

// New opens a store. The error is a *kernel.NotSupportedError on machines
// without loop devices.
func New(o Options) (*Backend, error) {
	loops, err := loop.New(loop.Options{Dir: o.Dir, NodeDir: o.NodeDir, Autoclear: o.Autoclear})
	if err != nil {
		return nil, fmt.Errorf("open tmpfs store: %w", err)
	}
	return &Backend{o: o, loops: loops, mounted: map[string]bool{}}, nil
}

// Name is "tmpfs".
func (b *Backend) Name() string { return "tmpfs" }

// breakableParameter is the one parameter, which package loop explains.
const breakableParameter = "breakable"

// Plan settles the size. A raw block volume can be breakable; there are no other
// parameters.
func (b *Backend) Plan(r backends.Request) (backends.Layout, error) {
	for _, key := range slices.Sorted(maps.Keys(r.Parameters)) {
		if key != breakableParameter {
			return backends.Layout{}, fmt.Errorf("plan volume: %w", &backends.UnknownParameterError{Key: key, Known: []string{breakableParameter}})
		}
	}
	if r.Block && r.Filesystem {
		return backends.Layout{}, fmt.Errorf("plan volume: a tmpfs volume is a file system or a block device, not both: %w", backends.ErrInvalid)
	}
	if value, ok := r.Parameters[breakableParameter]; ok && !r.Block && value != "false" {
		return backends.Layout{}, fmt.Errorf("plan volume: parameter %s cannot be %q for a tmpfs with a file system, which has no device that could break: %w", breakableParameter, value, backends.ErrInvalid)
	}
	for _, t := range r.FSTypes {
		if err := checkType(t); err != nil {
			return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
		}
	}
	if r.Block {
		return b.loops.Plan(r)
	}
	size, err := r.Size(0)
	if err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	return backends.Layout{SizeBytes: size}, nil
}

// fsType is the kernel's name of the one file system here.
const fsType = "tmpfs"

func checkType(t string) error {
	if t == "" || t == fsType {
		return nil
	}
	return fmt.Errorf("use file system %q (have %s): %w", t, fsType, backends.ErrInvalid)
}

// FreeBytes is the memory that the kernel can give away without swapping.
func (b *Backend) FreeBytes(context.Context) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("measure memory: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, " kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("measure memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("measure memory: /proc/meminfo has no MemAvailable")
}

// Close ends the backend. Volumes stay, unless Options.Autoclear is set.
func (b *Backend) Close() error {
	errs := []error{b.loops.Close()}
	if b.o.Autoclear {
		b.mu.Lock()
		defer b.mu.Unlock()
		for dir := range b.mounted {
			errs = append(errs, mount.Detach(dir))
		}
	}
	return errors.Join(errs...)
}

const (
	// dataName is where the tmpfs of a file system volume, or of its snapshot,
	// is mounted. A copy is mounted elsewhere until it is whole.
	dataName       = "data"
	unfinishedName = "data.tmp"
)

func dataDir(dir string) string { return filepath.Join(dir, dataName) }

func blockDir(dir string) string { return filepath.Join(dir, loop.NestedDir) }

// blockVolume is v as package loop sees it.
func blockVolume(v backends.Volume) backends.Volume {
	v.Dir = blockDir(v.Dir)
	return v
}

func blockSnapshot(s backends.Snapshot) backends.Snapshot {
	s.Dir = blockDir(s.Dir)
	return s
}
