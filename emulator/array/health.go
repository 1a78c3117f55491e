package array

import (
	"context"
	"fmt"
	"slices"

	"github.com/csiemu/csiemu/backends"
)

// SetHealth says what is wrong with a volume, in place of what was said before;
// nothing makes it healthy, as far as its backend sees no fault. It is recorded.
func (a *Array) SetHealth(ctx context.Context, id string, conditions []backends.Condition) error {
	if err := backends.CheckVolumeConditions(conditions); err != nil {
		return fmt.Errorf("set the health of volume %s: %w", id, err)
	}
	unlock, err := a.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("set the health of volume %s: %w", id, err)
	}
	defer unlock()
	v, err := a.Volume(id)
	if err != nil {
		return fmt.Errorf("set the health: %w", err)
	}
	next := v.clone()
	next.Health = slices.Clone(conditions)
	return a.put(ctx, next)
}

// SetFaultHealth says what is wrong with a volume by a fault. It is not recorded:
// faults end with the process.
func (a *Array) SetFaultHealth(id string, conditions []backends.Condition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(conditions) == 0 {
		delete(a.faultHealth, id)
		return
	}
	a.faultHealth[id] = conditions
}

// found forgets that start-up did not find the device of a volume.
func (a *Array) found(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unfound, id)
}

// DeviceLost is the reason of a volume that is attached, and whose device start-up
// could not bring back: what was under it is gone, and somebody has it in use.
const DeviceLost = "DeviceLost"

// Health is what is wrong with a volume: what its backend sees, and what was said
// by SetHealth or the mutable parameter. A healthy volume has no conditions.
func (a *Array) Health(ctx context.Context, v *Volume) ([]backends.Condition, error) {
	a.mu.Lock()
	said := backends.Conditions(v.Health, a.faultHealth[v.ID])
	unfound := a.unfound[v.ID]
	a.mu.Unlock()
	b, ok := a.backend.(backends.HealthBackend)
	if !ok {
		return said, nil
	}
	seen, err := b.Health(ctx, a.bytesOf(v))
	if err != nil {
		return nil, fmt.Errorf("look at the health of volume %s: %w", v.ID, err)
	}
	if unfound != nil && v.Device != nil && len(seen) == 0 {
		seen = []backends.Condition{{Status: backends.Inaccessible, Reason: DeviceLost, Message: unfound.Error()}}
	}
	return backends.Conditions(said, seen), nil
}

// Sick is a volume that is not healthy, with what is wrong with it.
type Sick struct {
	*Volume
	Conditions []backends.Condition
}

// ListHealth is List for volumes that are not healthy.
func (a *Array) ListHealth(ctx context.Context, token string, limit int) (sick []Sick, next string, err error) {
	volumes, _, err := a.volumes.page(token, 0, func(*Volume) bool { return true })
	if err != nil {
		return nil, "", err
	}
	for _, v := range volumes {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		wrong, err := a.Health(ctx, v)
		if err != nil { // which is no reason to be silent on the others
			wrong = []backends.Condition{{Status: backends.Inaccessible, Reason: "HealthUnknown", Message: err.Error()}}
		}
		switch {
		case len(wrong) == 0:
			continue
		case limit > 0 && len(sick) == limit:
			return sick, tokenAfter(sick[limit-1].Volume), nil
		}
		sick = append(sick, Sick{v, wrong})
	}
	return sick, "", nil
}
