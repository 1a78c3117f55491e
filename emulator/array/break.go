package array

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

// With calls f with a volume that nobody changes meanwhile.
func (a *Array) With(ctx context.Context, volumeID string, f func(*Volume) error) error {
	unlock, err := a.lock(ctx, volumeID)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := a.Volume(volumeID)
	if err != nil {
		return err
	}
	return f(v)
}

// Break makes a volume that is locked (With, Options.Connected) suffer from exactly
// these faults, and returns the mechanism of each; none heals it. A volume that
// is not attached has no device to break. backends.ErrPrecondition says what a
// volume of its kind cannot do.
func (a *Array) Break(ctx context.Context, v *Volume, faults []backends.VolumeFault) (mechanisms []string, err error) {
	b, ok := a.backend.(backends.FaultBackend)
	if !ok {
		return nil, fmt.Errorf("break volume %s: backend %s keeps no bytes that could be broken: %w", v.ID, a.backend.Name(), backends.ErrPrecondition)
	}
	mechanisms, err = b.Break(ctx, a.bytesOf(v), faults)
	if err != nil {
		return nil, fmt.Errorf("break volume %s: %w", v.ID, err)
	}
	return mechanisms, nil
}
