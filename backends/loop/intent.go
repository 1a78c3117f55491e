//go:build linux

package loop

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
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
func (i intents) put(s backends.Staged) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("note what is to be staged: %w", err)
	}
	path := i.path(s.VolumeID)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("note what is to be staged: %w", errors.Join(err, remove(path+".new")))
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("note what is to be staged: %w", errors.Join(err, remove(path+".new")))
	}
	return nil
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
