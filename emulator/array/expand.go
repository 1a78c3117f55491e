package array

import (
	"context"
	"errors"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
)

// Expand grows a volume and returns it. One that is large enough already is no
// error. online says whether a volume may grow while nodes are attached.
func (a *Array) Expand(ctx context.Context, id string, requiredBytes, limitBytes int64, online bool) (*Volume, error) {
	v, err := a.Volume(id)
	if err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	have := v.Layout.SizeBytes
	if limitBytes > 0 && have > limitBytes {
		return nil, fmt.Errorf("expand volume %s: it has %d bytes, more than the limit of %d, and does not shrink: %w", id, have, limitBytes, backends.ErrOutOfRange)
	}
	if requiredBytes <= have {
		if v.Growing {
			return a.grow(ctx, v)
		}
		return v, nil
	}
	if len(v.Attachments) > 0 && !online {
		return nil, fmt.Errorf("expand volume %s: it is attached to %q and grows offline only: %w", id, v.NodeIDs(), backends.ErrPrecondition)
	}
	_, _, rest, err := a.splitParameters(v.Parameters)
	if err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", id, err)
	}
	types := access.TypesOf(v.Capabilities)
	layout, err := a.backend.Plan(backends.Request{
		RequiredBytes: requiredBytes, LimitBytes: limitBytes, MinBytes: have,
		Block: types.Block, Filesystem: types.Filesystem, FSTypes: types.FSTypes, Parameters: rest,
	})
	if err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", id, err)
	}
	more := layout.SizeBytes - have
	if err := a.pools.reserve(v.Pool, more); err != nil {
		// The specification has no RESOURCE_EXHAUSTED for an expansion.
		return nil, fmt.Errorf("expand volume %s: %s: %w", id, err.Error(), backends.ErrOutOfRange)
	}
	growing := v.clone()
	growing.Layout, growing.Growing = layout, true
	if err := a.put(ctx, growing); err != nil {
		a.pools.release(v.Pool, more)
		return nil, fmt.Errorf("expand: %w", err)
	}
	if err := step.Done(ctx, "array.volume.growing"); err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", id, err)
	}
	return a.grow(ctx, growing)
}

// grow ends a growth that is recorded. If it fails the record stays, and the
// next call or start tries again.
func (a *Array) grow(ctx context.Context, v *Volume) (*Volume, error) {
	if err := a.backend.Grow(ctx, a.bytesOf(v)); err != nil {
		if errors.Is(err, backends.ErrExhausted) {
			err = fmt.Errorf("%s: %w", err.Error(), backends.ErrOutOfRange)
		}
		return nil, fmt.Errorf("expand volume %s: %w", v.ID, err)
	}
	if err := step.Done(ctx, "array.volume.extended"); err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", v.ID, err)
	}
	grown := v.clone()
	grown.Growing = false
	if err := a.put(ctx, grown); err != nil {
		return nil, fmt.Errorf("expand: %w", err)
	}
	if err := step.Done(ctx, "array.volume.grown"); err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", v.ID, err)
	}
	return grown, nil
}
