package memory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// MinFilesystemBytes is the size of the smallest volume with a file system:
// 1 MiB, less than a real one needs.
const MinFilesystemBytes = 1 << 20

// parameters are those of package loop, so that one StorageClass serves a test
// without and with real volumes. They are kept in the layout and change nothing.
var parameters = map[string]map[string]func(*backends.Layout){
	"provisioning": {
		"thin":  func(l *backends.Layout) { l.Thick = false },
		"thick": func(l *backends.Layout) { l.Thick = true },
	},
	"directIO": {
		"true":  func(l *backends.Layout) { l.DirectIO = true },
		"false": func(l *backends.Layout) { l.DirectIO = false },
	},
}

// fsTypes are the names of the file systems that the other backends have.
var fsTypes = []string{"btrfs", "ext4", "tmpfs", "xfs"}

// Plan settles size and parameters.
func (*Backend) Plan(r backends.Request) (backends.Layout, error) {
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
	var minimum int64
	if r.Filesystem {
		if err := checkTypes(r.FSTypes); err != nil {
			return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
		}
		minimum = MinFilesystemBytes
	}
	size, err := r.Size(minimum)
	if err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	l.SizeBytes = size
	return l, nil
}

func known[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

func checkTypes(types []string) error {
	if len(types) > 1 {
		return fmt.Errorf("a volume holds one file system, not %s: %w", strings.Join(types, " and "), backends.ErrInvalid)
	}
	for _, t := range types {
		if err := checkType(t); err != nil {
			return err
		}
	}
	return nil
}

func checkType(t string) error {
	if t == "" || slices.Contains(fsTypes, t) {
		return nil
	}
	return fmt.Errorf("use file system %q (have %s): %w", t, strings.Join(fsTypes, ", "), backends.ErrInvalid)
}
