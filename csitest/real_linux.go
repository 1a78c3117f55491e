package csitest

import (
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/reaper"
)

// Loop keeps volumes in image files under loop devices: ext4, xfs, btrfs or raw
// block. It needs Linux and root; elsewhere the test is skipped with the reason,
// or fails if the environment has CSITEST_REQUIRE_REAL. Nothing of the volumes is
// left when the test has ended, or was killed.
func Loop() Option {
	return func(o *options) {
		o.open = func(dir string, keep bool) (backends.Backend, error) {
			return loop.New(loop.Options{Dir: dir, Autoclear: !keep})
		}
	}
}

// Tmpfs keeps volumes in tmpfs mounts of their sizes; see Loop.
func Tmpfs() Option {
	return func(o *options) {
		o.open = func(dir string, keep bool) (backends.Backend, error) {
			return tmpfs.New(tmpfs.Options{Dir: dir, Autoclear: !keep})
		}
	}
}

// missing says why there are no real volumes here; empty where there are.
func missing() string {
	if os.Geteuid() != 0 {
		return "real volumes need root"
	}
	return ""
}

func makeStore(dir string) (string, error) {
	store := filepath.Join(dir, "store")
	return store, os.Mkdir(store, 0o700)
}

func watch(dir string) (guard, error) { return reaper.Watch(dir) }
