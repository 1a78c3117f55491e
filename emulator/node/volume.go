package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// Stats reports on a volume at its staging path or at one of its targets.
// Anything else is backends.ErrNotFound.
func (n *Node) Stats(ctx context.Context, volumeID, path string) (backends.Stats, error) {
	v, err := n.at(ctx, volumeID, path)
	if err != nil {
		return backends.Stats{}, fmt.Errorf("read the statistics of volume %s on node %s: %w", volumeID, n.Name, err)
	}
	staged := v.Staged
	if staged.Block {
		// A block device shows its new size at once; where there is none, the
		// array knows.
		staged.SizeBytes = n.currentSize(ctx, v)
	}
	stats, err := n.Backend.Stats(ctx, staged, path)
	if err != nil {
		return backends.Stats{}, fmt.Errorf("read the statistics of volume %s on node %s: %w", volumeID, n.Name, err)
	}
	return stats, nil
}

// at returns the record of a volume that the kernel shows at path.
func (n *Node) at(ctx context.Context, volumeID, path string) (*Volume, error) {
	v, ok := n.get(volumeID)
	if !ok {
		return nil, fmt.Errorf("it is not staged here: %w", backends.ErrNotFound)
	}
	there := v.Whole
	var err error
	if _, published := v.target(path); published {
		there, err = n.Backend.IsPublished(ctx, v.Staged, path)
	} else if v.StagingPath == path && there {
		there, err = n.Backend.IsStaged(ctx, v.Staged)
	} else {
		there = false
	}
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, fmt.Errorf("it is not at %q: %w", path, backends.ErrNotFound)
	}
	return v, nil
}

// Expand grows what lies on a volume to the size of its device and returns the
// size in bytes.
func (n *Node) Expand(ctx context.Context, volumeID, path string, limitBytes int64) (int64, error) {
	v, err := n.at(ctx, volumeID, path)
	if err == nil && limitBytes > 0 {
		err = n.checkLimit(ctx, v, limitBytes)
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s on node %s: %w", volumeID, n.Name, err)
	}
	next := v.clone()
	next.Staged.SizeBytes = n.currentSize(ctx, v)
	size, err := n.Backend.Expand(ctx, next.Staged)
	if err == nil {
		err = step.Done(ctx, "node.volume.expanded")
	}
	if err == nil && next.Staged != v.Staged {
		err = n.put(ctx, next)
	}
	if err != nil {
		return 0, fmt.Errorf("expand volume %s on node %s: %w", volumeID, n.Name, err)
	}
	return size, nil
}

// CheckCapability returns backends.ErrInvalid for a capability that a volume here is
// not used with. Of a volume that is not here it says nothing.
func (n *Node) CheckCapability(volumeID string, c access.Capability) error {
	v, ok := n.get(volumeID)
	if !ok || v.Capability.Block == c.Block && (c.FSType == "" || v.Staged.FSType == "" || c.FSType == v.Staged.FSType) {
		return nil
	}
	return fmt.Errorf("it is staged as %s, not as %s: %w", v.Capability, c, backends.ErrInvalid)
}

// checkLimit refuses to grow what lies on a volume that is larger than allowed.
// While the array is away nobody knows, and the device decides.
func (n *Node) checkLimit(ctx context.Context, v *Volume, limitBytes int64) error {
	size, err := n.Array.SizeOf(ctx, v.ID)
	if err == nil && size > limitBytes {
		return fmt.Errorf("it has %d bytes, more than the limit of %d: %w", size, limitBytes, backends.ErrOutOfRange)
	}
	return nil
}

// currentSize is the size of a volume that has no device to tell it: what the
// array says, else what was staged. It is 0 for volumes with a device.
func (n *Node) currentSize(ctx context.Context, v *Volume) int64 {
	if v.Staged.SizeBytes == 0 || v.Ephemeral {
		return v.Staged.SizeBytes
	}
	size, err := n.Array.SizeOf(ctx, v.ID)
	if err != nil {
		return v.Staged.SizeBytes
	}
	return size
}

// holdPatience is how long a hold waits for another call on the volume. That
// call may itself be waiting for the array, which has the volume locked for the
// snapshot, so that one of the two has to give up.
const holdPatience = 2 * time.Second

func (n *Node) lockToHold(ctx context.Context, volumeID string) (unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	unlock, err = n.Lock(waiting, volumeID)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("another call for the volume is under way on node %s: %w", n.Name, backends.ErrAborted)
	}
	return unlock, err
}

// Hold keeps the bytes of a volume still until the release is called. A volume
// that is not staged is still by itself. exact is backends.Hold.Exact.
func (n *Node) Hold(ctx context.Context, volumeID string, exact bool) (release func(context.Context) error, err error) {
	unlock, err := n.lockToHold(ctx, volumeID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	v, ok := n.get(volumeID)
	if ok && v.Whole {
		ok, err = n.Backend.IsStaged(ctx, v.Staged)
	}
	if err != nil {
		return nil, err
	}
	if !ok || !v.Whole {
		return func(context.Context) error { unlock(); return nil }, nil
	}
	// Recorded first: a hold outlives a killed process, and the next start
	// ends it. The record may say so of an earlier hold whose end failed.
	held, free := v.clone(), v.clone()
	held.Held, free.Held = true, false
	if err := n.put(ctx, held); err != nil {
		return nil, err
	}
	if err := step.Done(ctx, "node.hold.recorded"); err != nil {
		return nil, errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.put(ctx, free) }))
	}
	let, err := n.Backend.Hold(ctx, v.Staged, backends.Hold{Published: v.writable(), Exact: exact})
	if err != nil {
		return nil, errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return n.put(ctx, free) }))
	}
	end := func(ctx context.Context) error {
		return errors.Join(let(), step.Done(ctx, "node.hold.ended"), n.put(ctx, free))
	}
	if err := step.Done(ctx, "node.hold.begun"); err != nil {
		return nil, errors.Join(err, undo.Run(ctx, end))
	}
	return func(ctx context.Context) error {
		defer unlock()
		return end(ctx)
	}, nil
}
