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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/node"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
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

// audit lists what is there and not explained by a record, and what a record
// promises and is not there.
func (r *rig) audit() (records, []string) {
	have, err := readRecords(r.state)
	if err != nil {
		return have, []string{err.Error()}
	}
	var found []string
	for id, v := range have.volumes {
		if v.State != array.Ready || v.Growing {
			found = append(found, fmt.Sprintf("volume %s is %s, growing %t", id, v.State, v.Growing))
		}
	}
	for id, s := range have.snapshots {
		if s.State != array.Ready {
			found = append(found, fmt.Sprintf("snapshot %s is %s", id, s.State))
		}
	}
	for _, v := range have.staged {
		if v.Held {
			found = append(found, fmt.Sprintf("writers of volume %s are held", v.ID))
		}
	}
	for _, part := range []func(records) ([]string, error){r.files, r.devices, r.mounts} {
		more, err := part(have)
		if err != nil {
			more = append(more, err.Error())
		}
		found = append(found, more...)
	}
	return have, found
}

// files lists files that nobody explains, in the state directory and where
// temporary ones go. It enters no mount.
func (r *rig) files(have records) (found []string, err error) {
	mounted, err := mount.ListUnder(r.dir)
	if err != nil {
		return nil, err
	}
	at := map[string]bool{}
	for _, m := range mounted {
		at[m.MountPoint] = true
	}
	for _, root := range []string{r.state, r.tmp} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // gone since its directory was read
			case err != nil:
				return err
			case path == root:
				return nil
			}
			below, _ := filepath.Rel(r.dir, path)
			if !have.explainsFile(r, strings.Split(below, "/"), e) {
				found = append(found, fmt.Sprintf("file %s (%v)", path, e.Type()))
			}
			if at[path] {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
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

// devices lists loop devices over images of the rig that no attachment explains,
// and attachments whose device is missing.
func (r *rig) devices(have records) (found []string, err error) {
	wanted := map[string]string{} // name of the device by the path of its image
	for id, v := range have.volumes {
		dir := filepath.Join(r.state, "volumes", id)
		switch {
		case v.Device == nil:
		case v.Layout.Breakable:
			wanted[filepath.Join(dir, "breakable", "mount", "image")] = v.Device.ID
		case r.backend == "loop":
			wanted[filepath.Join(dir, "image")] = v.Device.ID
		case r.backend == "tmpfs" && v.Layout.Block:
			wanted[filepath.Join(dir, "block", "image")] = v.Device.ID
		}
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	backing := map[string]string{} // file by the path of its device
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil { // gone since, if not
			backing["/dev/"+strings.Split(name, "/")[3]] = strings.TrimSpace(string(b))
		}
	}
	for device, file := range backing {
		below := backing[file] // of a read-only device over another one
		if !strings.HasPrefix(file, r.dir+"/") && !strings.HasPrefix(below, r.dir+"/") {
			continue
		}
		index, err := strconv.Atoi(strings.TrimPrefix(device, "/dev/loop"))
		if err != nil {
			return found, err
		}
		st, err := loopdev.StatusOf(index, loopdev.Options{})
		if errors.Is(err, loopdev.ErrNotBound) {
			continue
		}
		if err != nil {
			return found, err
		}
		switch name := wanted[file]; {
		case name != "" && st.Name == name && st.SizeLimit == 0:
			delete(wanted, file)
		case below != "" && have.explainsReader(st.Name):
		default:
			found = append(found, fmt.Sprintf("loop device %s (%s) over %s", device, st.Name, file))
		}
	}
	for image, name := range wanted {
		found = append(found, fmt.Sprintf("no loop device %s over %s", name, image))
	}
	return found, nil
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

// mounts lists mounts of the rig that no record explains, or that are there
// twice.
func (r *rig) mounts(have records) (found []string, err error) {
	all, err := mount.ListUnder(r.dir)
	if err != nil {
		return nil, err
	}
	explained := map[string]bool{r.dir: true}
	for id, v := range have.volumes {
		explained[filepath.Join(r.state, "volumes", id, "breakable", "mount")] = v.Device != nil
	}
	if r.backend == "tmpfs" {
		for id, v := range have.volumes {
			explained[filepath.Join(r.state, "volumes", id, dirOf(v.Layout.Block))] = true
		}
		for id, s := range have.snapshots {
			explained[filepath.Join(r.state, "snapshots", id, dirOf(s.Layout.Block))] = true
		}
	}
	for _, v := range have.staged {
		explained[v.StagingPath], explained[v.Staged.Path] = true, true
		explained[filepath.Join(v.StagingPath, "data")] = v.Ephemeral
		for _, t := range v.Targets {
			explained[t.Path] = true
		}
	}
	seen := map[string]bool{}
	for _, m := range all {
		if !explained[m.MountPoint] || seen[m.MountPoint] {
			found = append(found, fmt.Sprintf("mount of %s at %s, there twice %t", m.Source, m.MountPoint, seen[m.MountPoint]))
		}
		seen[m.MountPoint] = true
	}
	return found, nil
}

func dirOf(block bool) string {
	if block {
		return "block"
	}
	return "data"
}

// requireExplained waits until everything there is explained: the kernel frees
// devices after the call that asks for it.
func (r *rig) requireExplained(t *testing.T) records {
	t.Helper()
	const settle = 5 * time.Second
	late := time.NewTimer(settle)
	defer late.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		have, found := r.audit()
		if len(found) == 0 {
			return have
		}
		select {
		case <-late.C:
			require.Empty(t, found, "not explained by a record; the emulator says: %s", r.child.log.String())
		case <-again.C:
		}
	}
}
