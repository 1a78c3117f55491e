//go:build linux

package crash_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/node"
)

// records are what the state directory says, read as nobody's but a file
// system's: the emulator that owns it runs.
type records struct {
	volumes   map[string]*array.Volume
	snapshots map[string]*array.Snapshot
	staged    map[string]*node.Volume // by the id of the record
}

// hashOf is the name of what belongs to an id or path that may hold any
// character: 16 bytes of its SHA-256.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// readRecords reads all records that matter to devices, mounts and files.
func readRecords(state string) (records, error) {
	r := records{}
	var errs [3]error
	r.volumes, errs[0] = readKind[array.Volume](filepath.Join(state, "volumes"))
	r.snapshots, errs[1] = readKind[array.Snapshot](filepath.Join(state, "snapshots"))
	nodes, err := filepath.Glob(filepath.Join(state, "node", "*", "volumes"))
	for _, dir := range nodes {
		r.staged, errs[2] = readKind[node.Volume](dir)
	}
	return r, errors.Join(errs[0], errs[1], errs[2], err)
}

func readKind[T any](dir string) (map[string]*T, error) {
	found := map[string]*T{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "record.json"))
		if err != nil {
			return nil, err
		}
		envelope := struct{ Data *T }{new(T)}
		if err := json.Unmarshal(b, &envelope); err != nil {
			return nil, fmt.Errorf("record %s: %w", e.Name(), err)
		}
		found[e.Name()] = envelope.Data
	}
	return found, err
}

// explainsFile says whether a path, in elements below the directory of the rig,
// has to be where it is.
func (have records) explainsFile(r *rig, p []string, e fs.DirEntry) bool {
	// Of a record that was replaced the old content stays, to be written over.
	ofRecord := func(name string) bool { return name == "record.json" || name == ".record.new" }
	if p[0] != "state" {
		return false
	}
	switch kind, n := p[1], len(p); {
	case n == 2:
		return slices.Contains([]string{"lock", "array", "nodes", "volumes", "snapshots", "groups", "node"}, kind)
	case kind == "array", kind == "nodes", kind == "groups":
		return n == 3 || (n == 4 && ofRecord(p[3]))
	case kind == "volumes":
		v := have.volumes[p[2]]
		return v != nil && (n == 3 || ofRecord(p[3]) || (v.Layout.Breakable && explainsHolder(p[3:])) ||
			r.explainsBytes(v.Layout.SizeBytes, v.Layout.Block, p[3:], e))
	case kind == "snapshots":
		s := have.snapshots[p[2]]
		return s != nil && (n == 3 || ofRecord(p[3]) || r.explainsBytes(s.Layout.SizeBytes, s.Layout.Block, p[3:], e))
	case kind != "node":
		return false
	case n == 3:
		return true
	}
	switch kind, n := p[3], len(p); {
	case n == 4:
		return slices.Contains([]string{"lock", "volumes", "devices", "stage"}, kind)
	case kind == "volumes":
		return have.staged[p[4]] != nil && (n == 5 || ofRecord(p[5]))
	case kind == "stage":
		return have.staged[p[4]] != nil
	case kind == "devices":
		return n == 5 && have.explainsNote(p[4])
	}
	return false
}

// explainsBytes says whether what lies beside the record of a volume or snapshot
// is its bytes.
func (r *rig) explainsBytes(size int64, block bool, p []string, e fs.DirEntry) bool {
	switch r.backend {
	case "loop":
		info, err := e.Info()
		return err == nil && len(p) == 1 && p[0] == "image" && info.Size() == size
	case "tmpfs":
		return len(p) == 1 && e.IsDir() && (p[0] == "block") == block && (p[0] == "data") != block
	}
	return false
}

// explainsHolder says whether a file below the directory of a breakable volume is
// one of the process under its device.
func explainsHolder(p []string) bool {
	return p[0] == "breakable" && (len(p) == 1 || slices.Contains([]string{"mount", "control", "lock", "shape.json", "device.json"}, p[1]))
}

// explainsNote says whether a file among those of a node's backend belongs to
// something that the node has a record of.
func (have records) explainsNote(name string) bool {
	for id, v := range have.staged {
		if name == "staging-"+id+".json" || name == "place-"+hashOf(v.StagingPath)+".json" || name == "place-"+hashOf(v.Staged.Path)+".json" {
			return true
		}
		if slices.ContainsFunc(v.Targets, func(t node.Target) bool { return name == "place-"+hashOf(t.Path)+".json" }) {
			return true
		}
	}
	return false
}

// explainsReader says whether a read-only device over an attachment's belongs to
// a publication.
func (have records) explainsReader(name string) bool {
	attachment, _, ok := strings.Cut(name, "-ro-")
	for _, v := range have.staged {
		if ok && v.Staged.DeviceID == attachment && slices.ContainsFunc(v.Targets, func(t node.Target) bool { return t.ReadOnly }) {
			return true
		}
	}
	return false
}
