//go:build linux

package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
)

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
