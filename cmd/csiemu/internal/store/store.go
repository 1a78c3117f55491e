// Package store opens the backend that a flag names.
package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
)

// Memory is the backend that every system has.
const Memory = "memory"

// Options describe a store.
type Options struct {
	// Dir is the state directory, below which volumes lie; New makes it. It
	// may be empty for Memory.
	Dir string
	// Sync makes bytes survive a lost machine.
	Sync bool
}

// kind makes one kind of backend in Options.Dir, which exists.
type kind func(Options) (backends.Backend, error)

// Names are the backends of this system, the most useful first.
func Names() []string {
	return append(slices.Clone(ofSystem), Memory)
}

// Default is the first of Names.
func Default() string { return Names()[0] }

// Check says whether the backend exists here and can work with the state
// directory dir, by their names alone.
func Check(name, dir string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("read --backend: no backend %q here: give one of %s", name, strings.Join(Names(), ", "))
	}
	if dir == "" && name != Memory {
		return fmt.Errorf("backend %s needs a state directory: give --state-dir DIR", name)
	}
	return nil
}

// New opens the backend called name.
func New(ctx context.Context, name string, o Options) (_ backends.Backend, err error) {
	if err := Check(name, o.Dir); err != nil {
		return nil, err
	}
	if err := probe(ctx, name); err != nil {
		return nil, fmt.Errorf("open backend %s: %w", name, err)
	}
	if o.Dir != "" {
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return nil, fmt.Errorf("find state directory: %w", err)
		}
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	if name == Memory {
		return memory.New(memory.Options{}), nil
	}
	b, err := kinds[name](o)
	if err != nil {
		return nil, fmt.Errorf("open backend %s: %w", name, err)
	}
	return b, nil
}
