//go:build linux

package tmpfs

import (
	"context"

	"github.com/csiemu/csiemu/backends"
)

// Shape makes the device of a raw block volume slow. backends.ErrPrecondition is
// returned for a volume that is not breakable.
func (b *Backend) Shape(ctx context.Context, v backends.Volume, s backends.Shaping) error {
	return b.loops.Shape(ctx, blockVolume(v), s)
}

// Pause holds the writes to the device of a raw block volume.
// backends.ErrPrecondition is returned for a volume that is not breakable.
func (b *Backend) Pause(ctx context.Context, v backends.Volume) (func() error, error) {
	return b.loops.Pause(ctx, blockVolume(v))
}
