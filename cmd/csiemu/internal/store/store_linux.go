package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/kernel"
)

var ofSystem = []string{"loop", "tmpfs"}

var kinds = map[string]kind{
	"loop": func(o Options) (backends.Backend, error) {
		devices, err := makeDevicesDir(o)
		if err != nil {
			return nil, err
		}
		return loop.New(loop.Options{Dir: o.Dir, NodeDir: devices, Sync: o.Sync})
	},
	"tmpfs": func(o Options) (backends.Backend, error) {
		devices, err := makeDevicesDir(o)
		if err != nil {
			return nil, err
		}
		return tmpfs.New(tmpfs.Options{Dir: o.Dir, NodeDir: devices})
	},
}

// probe asks for what every real volume needs, so that its absence is said
// before anything is made and not with the first volume.
func probe(ctx context.Context, name string) error {
	if name == Memory {
		return nil
	}
	for _, f := range []kernel.Feature{kernel.Root, kernel.Loop} {
		if err := kernel.Probe(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// makeDevicesDir makes the directory for device nodes that /dev does not show.
func makeDevicesDir(o Options) (devices string, err error) {
	devices = filepath.Join(o.Dir, "devices")
	if err := os.MkdirAll(devices, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of device nodes: %w", err)
	}
	return devices, nil
}
