package memory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
)

// A volume's life, without privileges and on any system.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		panic(err)
	}

	array := memory.New(memory.Options{})
	layout, err := array.Plan(backends.Request{Filesystem: true, RequiredBytes: 5_000_000})
	if err != nil {
		panic(err)
	}
	volume := backends.Volume{ID: "vol-1", Layout: layout}
	publishContext, err := array.Attach(ctx, volume, backends.Attachment{ID: "att-1"})
	if err != nil {
		panic(err)
	}

	node, err := array.Node(backends.NodeConfig{})
	if err != nil {
		panic(err)
	}
	staged, err := node.Stage(ctx, backends.StageRequest{VolumeID: "vol-1", PublishContext: publishContext, Path: filepath.Join(dir, "staging")})
	if err != nil {
		panic(err)
	}
	target := filepath.Join(dir, "target")
	if err := node.Publish(ctx, staged, backends.PublishRequest{Path: target}); err != nil {
		panic(err)
	}
	stats, err := node.Stats(ctx, staged, target)
	fmt.Println(layout.SizeBytes, stats.TotalBytes, err)

	err = node.Unpublish(ctx, staged, target)
	_, gone := os.Stat(target)
	fmt.Println(err, os.IsNotExist(gone))
	// Output:
	// 5001216 5001216 <nil>
	// <nil> true
}
