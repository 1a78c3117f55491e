//go:build linux

package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
)

// parameters are the StorageClass parameters that Plan knows, each with its
// values and what they do.
var parameters = map[string]map[string]func(*backends.Layout){
	"provisioning": {
		"thin":  func(l *backends.Layout) { l.Thick = false },
		"thick": func(l *backends.Layout) { l.Thick = true },
	},
	"directIO": {
		"true":  func(l *backends.Layout) { l.DirectIO = true },
		"false": func(l *backends.Layout) { l.DirectIO = false },
	},
	"breakable": {
		"true":  func(l *backends.Layout) { l.Breakable = true },
		"false": func(l *backends.Layout) { l.Breakable = false },
	},
}

// Plan settles size and parameters. A size is rounded up to
// backends.Granularity, and to the smallest file system of the wanted type.
func (b *Backend) Plan(r backends.Request) (backends.Layout, error) {
	l := backends.Layout{Block: r.Block && !r.Filesystem}
	for _, key := range slices.Sorted(maps.Keys(r.Parameters)) {
		values, ok := parameters[key]
		if !ok {
			return backends.Layout{}, fmt.Errorf("plan volume: %w", &backends.UnknownParameterError{Key: key, Known: slices.Sorted(maps.Keys(parameters))})
		}
		set, ok := values[r.Parameters[key]]
		if !ok {
			return backends.Layout{}, fmt.Errorf("plan volume: parameter %s cannot be %q (known are %s): %w", key, r.Parameters[key], known(values), backends.ErrInvalid)
		}
		set(&l)
	}
	if err := planBreakable(l); err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	minimum, err := smallest(r)
	if err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	l.SizeBytes, err = r.Size(minimum)
	if err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	return l, nil
}

func known[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// smallest is the size of the smallest file system that r allows, 0 for block.
func smallest(r backends.Request) (int64, error) {
	if !r.Filesystem {
		return 0, nil
	}
	if len(r.FSTypes) > 1 {
		return 0, fmt.Errorf("a volume holds one file system, not %s: %w", strings.Join(r.FSTypes, " and "), backends.ErrInvalid)
	}
	t, err := filesystem.ParseType(strings.Join(r.FSTypes, ""))
	if err != nil {
		return 0, err
	}
	return filesystem.MinBytes(t), nil
}
