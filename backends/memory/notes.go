package memory

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/backends"
)

// note says what is at one path. It stands for the kernel's table of mounts and
// is all that tells what this backend made from what it found.
type note struct {
	Path     string `json:"path"`
	VolumeID string `json:"volumeID"`
	// Staged is true for a staging path, false for a target.
	Staged bool `json:"staged,omitempty"`
	// DeviceID is the attachment of a staging path.
	DeviceID string `json:"deviceID,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Made is true for what was not there before.
	Made bool `json:"made,omitempty"`
}

// notes are kept in memory and, where the node has a directory, as one file
// each, so that a later process can clean up. They are safe for concurrent use.
//
// A note is written before anything is made. One that a killed process left
// half written is none, and nothing was made then.
type notes struct {
	dir string

	mu   sync.Mutex
	byAt map[string]note
}

const (
	notePrefix = "place-"
	noteSuffix = ".json"
)

// openNotes reads the notes of an earlier process.
func openNotes(dir string) (*notes, error) {
	n := &notes{dir: dir, byAt: map[string]note{}}
	if dir == "" {
		return n, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), notePrefix) || !strings.HasSuffix(e.Name(), noteSuffix) {
			continue
		}
		var found note
		name := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(b, &found) != nil || n.file(found.Path) != name {
			if err := os.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		n.byAt[found.Path] = found
	}
	return n, nil
}

// file is the name of the note for a path, which may be longer than a name can
// be.
func (n *notes) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(n.dir, fmt.Sprintf("%s%x%s", notePrefix, sum[:16], noteSuffix))
}

func (n *notes) at(path string) (note, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.byAt[path]
	return found, ok
}

func (n *notes) put(p note) error {
	if n.dir != "" {
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.file(p.Path), b, 0o600); err != nil {
			return fmt.Errorf("note what is made at %s: %w", p.Path, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byAt[p.Path] = p
	return nil
}

func (n *notes) drop(path string) error {
	if n.dir != "" {
		if err := os.Remove(n.file(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byAt, path)
	return nil
}

// staging returns the note of the staging path of s. A record that was never
// completed has no attachment; its volume and path are enough then.
func (n *notes) staging(s backends.Staged) (note, bool) {
	p, ok := n.at(s.Path)
	ok = ok && p.Staged && p.VolumeID == s.VolumeID && (s.DeviceID == "" || s.DeviceID == p.DeviceID)
	return p, ok
}

// target returns the note of a target of s.
func (n *notes) target(s backends.Staged, path string) (note, bool) {
	p, ok := n.at(path)
	return p, ok && !p.Staged && p.VolumeID == s.VolumeID
}
