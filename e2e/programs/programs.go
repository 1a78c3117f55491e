// Package programs is where the programs are that `make e2e` builds for the tests.
package programs

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dir is where the programs are, whether they are built or not: in the user's
// cache directory, as they are the same for all work trees.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(cache, "csiemu", "e2e"), nil
}

// Path is the path of a program, which must have been built.
func Path(name string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s, which `make e2e` builds: %w", name, err)
	}
	return path, nil
}
