package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// hierarchies are the mounts of cgroup v1, a directory each.
const hierarchies = "/sys/fs/cgroup"

// errNoV1 says that the machine has cgroup v2 only.
var errNoV1 = errors.New("find cgroup v1: there is no " + hierarchies + "/memory, and package cluster knows no other: start Linux with systemd.unified_cgroup_hierarchy=0")

// cgroup is the name of a cluster's cgroup in every hierarchy.
func cgroup(number int) string { return fmt.Sprintf("csiemu-e2e-%d", number) }

// makeCgroup makes a node's cgroup in every hierarchy, as the kubelet wants it. One
// without processors and memory of its own lets no process in.
func makeCgroup(number int, node string) error {
	if _, err := os.Stat(filepath.Join(hierarchies, "memory")); err != nil {
		return errNoV1
	}
	all, err := os.ReadDir(hierarchies)
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		outer := filepath.Join(hierarchies, hierarchy.Name(), cgroup(number))
		for _, dir := range []string{outer, filepath.Join(outer, node)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make a cgroup: %w", err)
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(dir, file); err != nil {
					return fmt.Errorf("fill a cgroup: %w", err)
				}
			}
		}
	}
	return nil
}

// inherit gives a cgroup what its parent has in a file, if there is such a file.
func inherit(dir, file string) error {
	value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), value, 0o644)
}

// settle is how long processes may take to be gone that were killed.
const settle = 10 * time.Second

// removeCgroup removes the cgroups of a cluster whose processes have ended.
func removeCgroup(number int) error {
	all, err := filepath.Glob(filepath.Join(hierarchies, "*", cgroup(number)))
	if err != nil {
		return err
	}
	for _, top := range all {
		if err := eventually(func() error { return removeDirs(top) }); err != nil {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
	}
	return nil
}

// removeDirs removes a directory and those in it, which have no files of their own.
func removeDirs(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // a controller has removed it meanwhile
		}
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		if removed := os.Remove(dir); removed != nil && !errors.Is(removed, os.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}

// eventually does something again and again until it succeeds, for as long as what
// was killed may take to be gone.
func eventually(do func() error) error {
	late := time.NewTimer(settle)
	defer late.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-late.C:
			return err
		}
	}
}
