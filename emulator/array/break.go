package array

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

// Break makes a volume suffer from exactly these faults, and returns the mechanism
// of each; none heals it. A volume that is not attached has no device to break:
// the faults are given to it when it is.
func (a *Array) Break(ctx context.Context, volumeID string, faults []backends.VolumeFault) (mechanisms []string, err error) {
	unlock, err := a.lock(ctx, volumeID)
	if err != nil {
		return nil, fmt.Errorf("break volume %s: %w", volumeID, err)
	}
	defer unlock()
	v, err := a.Volume(volumeID)
	if err != nil {
		return nil, fmt.Errorf("break: %w", err)
	}
	b, ok := a.backend.(backends.FaultBackend)
	if !ok {
		return nil, fmt.Errorf("break volume %s: backend %s keeps no bytes that could be broken: %w", volumeID, a.backend.Name(), backends.ErrPrecondition)
	}
	mechanisms, err = b.Break(ctx, a.bytesOf(v), faults)
	if err != nil {
		return nil, fmt.Errorf("break volume %s: %w", volumeID, err)
	}
	return mechanisms, nil
}
