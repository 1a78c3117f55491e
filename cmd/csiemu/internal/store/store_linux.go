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
	"loop": func(ctx context.Context, o Options) (backends.Backend, error) {
		devices, err := prepare(ctx, o)
		if err != nil {
			return nil, err
		}
		return loop.New(loop.Options{Dir: o.Dir, NodeDir: devices, Sync: o.Sync})
	},
	"tmpfs": func(ctx context.Context, o Options) (backends.Backend, error) {
		devices, err := prepare(ctx, o)
		if err != nil {
			return nil, err
		}
		return tmpfs.New(tmpfs.Options{Dir: o.Dir, NodeDir: devices})
	},
}

// prepare asks for what every real volume needs, so that its absence is said now
// and not with the first volume, and makes the directory for device nodes that
// /dev does not show.
func prepare(ctx context.Context, o Options) (devices string, err error) {
	for _, f := range []kernel.Feature{kernel.Root, kernel.Loop} {
		if err := kernel.Probe(ctx, f); err != nil {
			return "", err
		}
	}
	devices = filepath.Join(o.Dir, "devices")
	if err := os.MkdirAll(devices, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of device nodes: %w", err)
	}
	return devices, nil
}
