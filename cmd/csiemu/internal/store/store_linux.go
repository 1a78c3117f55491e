package store

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
)

var ofSystem = []string{"loop", "tmpfs"}

var kinds = map[string]kind{
	"loop": func(o Options) (backends.Backend, error) {
		devices, err := deviceDir(o)
		if err != nil {
			return nil, err
		}
		return loop.New(loop.Options{Dir: o.Dir, NodeDir: devices, Sync: o.Sync})
	},
	"tmpfs": func(o Options) (backends.Backend, error) {
		devices, err := deviceDir(o)
		if err != nil {
			return nil, err
		}
		return tmpfs.New(tmpfs.Options{Dir: o.Dir, NodeDir: devices})
	},
}

// deviceDir makes the directory for device nodes that /dev does not show.
func deviceDir(o Options) (string, error) {
	dir := filepath.Join(o.Dir, "devices")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of device nodes: %w", err)
	}
	return dir, nil
}
