//go:build !linux

package csitest

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
)

// Loop needs Linux and root; here the test is skipped, or fails if the environment
// has CSITEST_REQUIRE_REAL.
func Loop() Option { return Tmpfs() }

// Tmpfs is as Loop.
func Tmpfs() Option {
	return func(o *options) {
		o.open = func(string, bool) (backends.Backend, error) { return nil, errors.New(missing()) }
	}
}

func missing() string { return "real volumes need Linux" }

func makeStore(dir string) (string, error) {
	store := filepath.Join(dir, "store")
	return store, os.Mkdir(store, 0o700)
}

func watch(string) (guard, error) { return nil, nil }
