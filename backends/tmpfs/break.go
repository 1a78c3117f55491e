//go:build linux

package tmpfs

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

// Break makes the device of a raw block volume suffer; a tmpfs has nothing below
// it that could break.
func (b *Backend) Break(ctx context.Context, v backends.Volume, faults []backends.VolumeFault) ([]string, error) {
	if v.Block {
		return b.loops.Break(ctx, blockVolume(v), faults)
	}
	if len(faults) == 0 {
		return nil, nil
	}
	return nil, fmt.Errorf("break volume %s: a tmpfs has nothing below it that could break; use backend loop: %w", v.ID, backends.ErrPrecondition)
}
