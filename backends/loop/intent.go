//go:build linux

package loop

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

// intents are notes of what a node is about to mount, one file a volume. The
// caller's own record is whole only after Stage has returned; if the process is
// killed before, Unstage is asked with the volume's id and path alone and must
// tell a mount that Stage made from somebody else's.
type intents struct{ dir string }

func (i intents) path(volumeID string) string {
	sum := sha256.Sum256([]byte(volumeID)) // an id may hold any character
	return filepath.Join(i.dir, fmt.Sprintf("staging-%x.json", sum[:16]))
}

// put writes the note for s, as a whole or not at all.
func (i intents) put(ctx context.Context, s backends.Staged) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("note what is to be staged: %w", err)
	}
	path := i.path(s.VolumeID)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("note what is to be staged: %w", errors.Join(err, remove(path+".new")))
	}
	err = step.Done(ctx, "loop.stage.noting")
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("note what is to be staged: %w", errors.Join(err, remove(path+".new")))
	}
	return step.Done(ctx, "loop.stage.noted")
}

// sweep removes what a killed put left. It goes before the first put.
func (i intents) sweep() error {
	left, err := filepath.Glob(filepath.Join(quote(i.dir), "staging-*.json.new"))
	for _, path := range left {
		err = errors.Join(err, remove(path))
	}
	return err
}

// complete returns s, or what the note says where s is a record that was never
// completed. Without a note nothing was mounted: ok is false.
func (i intents) complete(s backends.Staged) (whole backends.Staged, ok bool, err error) {
	if s.DeviceID != "" {
		return s, true, nil
	}
	data, err := os.ReadFile(i.path(s.VolumeID))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err != nil {
		return s, false, fmt.Errorf("read what was to be staged: %w", err)
	}
	return whole, whole.VolumeID == s.VolumeID && whole.Path == s.Path, nil
}

// drop removes the note of a volume that is not mounted any more.
func (i intents) drop(volumeID string) error { return remove(i.path(volumeID)) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// quote keeps Glob from reading meaning into a path.
func quote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
