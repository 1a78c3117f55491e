// Package memory is a backend that keeps no bytes: its volumes are records, and
// publishing one makes a plain directory or file.
//
// It works on every operating system, without privileges, and inside
// testing/synctest: it starts no goroutine and reads no clock. It is for tests
// of callers, which see every answer of the driver and handle every path, but
// store nothing.
package memory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/csiemu/csiemu/backends"
)

// Options are there for later; the zero value is all there is.
type Options struct{}

// Backend is the array's half. It has no state: what there is to know of a
// volume is in its record.
type Backend struct{}

var _ backends.Backend = (*Backend)(nil)

// New makes a backend.
func New(Options) *Backend { return &Backend{} }

// Name is "memory".
func (*Backend) Name() string { return "memory" }

// Plan settles the size. There are no parameters, and any file system will do.
func (*Backend) Plan(r backends.Request) (backends.Layout, error) {
	if len(r.Parameters) > 0 {
		return backends.Layout{}, fmt.Errorf("plan volume: parameters %q are not known (there are none): %w",
			slices.Sorted(maps.Keys(r.Parameters)), backends.ErrInvalid)
	}
	size, err := r.Size(0)
	if err != nil {
		return backends.Layout{}, fmt.Errorf("plan volume: %w", err)
	}
	return backends.Layout{SizeBytes: size, Block: r.Block && !r.Filesystem}, nil
}

// Create has nothing to make.
func (*Backend) Create(ctx context.Context, _ backends.Volume) error { return ctx.Err() }

// Delete has nothing to remove.
func (*Backend) Delete(context.Context, backends.Volume) error { return nil }

// Grow has nothing to grow.
func (*Backend) Grow(ctx context.Context, _ backends.Volume) error { return ctx.Err() }

// sizeKey carries the size to the node's half, which has no device to ask.
const sizeKey = "csiemu.dev/size"

// attachmentKey names the attachment.
const attachmentKey = "csiemu.dev/attachment"

// Attach gives the node what it cannot find out by itself.
func (*Backend) Attach(ctx context.Context, v backends.Volume, a backends.Attachment) (map[string]string, error) {
	return map[string]string{attachmentKey: a.ID, sizeKey: fmt.Sprint(v.SizeBytes)}, ctx.Err()
}

// Detach has no device to take away.
func (*Backend) Detach(context.Context, backends.Volume, backends.Attachment) error { return nil }

// Snapshot has no bytes to cut.
func (*Backend) Snapshot(ctx context.Context, _ backends.Volume, _ backends.Snapshot) error {
	return ctx.Err()
}

// DeleteSnapshot has nothing to remove.
func (*Backend) DeleteSnapshot(context.Context, backends.Snapshot) error { return nil }

// Restore has no bytes to copy.
func (*Backend) Restore(ctx context.Context, _ backends.Snapshot, _ backends.Volume) error {
	return ctx.Err()
}

// Clone has no bytes to copy.
func (*Backend) Clone(ctx context.Context, _, _ backends.Volume) error { return ctx.Err() }

// Usage is nothing.
func (*Backend) Usage(ctx context.Context, _ backends.Volume) (backends.Usage, error) {
	return backends.Usage{}, ctx.Err()
}

// SnapshotUsage is nothing.
func (*Backend) SnapshotUsage(ctx context.Context, _ backends.Volume) (backends.Usage, error) {
	return backends.Usage{}, ctx.Err()
}

// FreeBytes has no end.
func (*Backend) FreeBytes(ctx context.Context) (int64, error) { return math.MaxInt64, ctx.Err() }

// Node makes the node's half.
func (*Backend) Node(backends.NodeConfig) (backends.Node, error) { return &Node{}, nil }

// Close has nothing to end.
func (*Backend) Close() error { return nil }
