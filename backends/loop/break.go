//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
)

// The mechanisms of faults, for people.
const (
	servedMechanism = "the process that serves the image file under the loop device (FUSE)"
	killedMechanism = "the process that serves the image file under the loop device (FUSE) was killed"
	limitMechanism  = "size limit of the loop device: file systems get EIO, raw block users see a device of no size"
)

// Break makes a volume suffer. All faults work on a breakable volume; a plain one
// can only fail all of its I/O. A device that is gone does not come back: after a
// Detach and an Attach the volume is whole.
func (b *Backend) Break(ctx context.Context, v backends.Volume, faults []backends.VolumeFault) ([]string, error) {
	breakIt := b.breakPlain
	if v.Breakable {
		breakIt = b.breakServed
	}
	mechanisms, err := breakIt(ctx, v, faults)
	if err != nil {
		return nil, fmt.Errorf("break volume %s: %w", v.ID, err)
	}
	return mechanisms, nil
}

// breakServed tells the holder of a breakable volume how to behave.
func (b *Backend) breakServed(ctx context.Context, v backends.Volume, faults []backends.VolumeFault) (mechanisms []string, err error) {
	dir := breakableDir(v)
	want := fusefile.Behaviour{}
	if want.Shape, err = readShape(dir); err != nil {
		return nil, err
	}
	gone := false
	for _, f := range faults {
		mechanism := servedMechanism
		switch f.Kind {
		case backends.FaultSlow:
			want.Delay += f.Latency
		case backends.FaultGone:
			gone, mechanism = true, killedMechanism
		default:
			served, err := servedFault(f)
			if err != nil {
				return nil, err
			}
			want.Faults = append(want.Faults, served)
		}
		mechanisms = append(mechanisms, mechanism)
	}
	if gone {
		return mechanisms, fusefile.Kill(ctx, dir)
	}
	// Without a holder there is no device: the faults come again with Attach.
	if err := fusefile.Behave(ctx, dir, want); err != nil && !errors.Is(err, fusefile.ErrNotServing) {
		return nil, fmt.Errorf("%w: %w", err, backends.ErrUnavailable)
	}
	return mechanisms, nil
}

// servedFault is a fault in the words of the holder.
func servedFault(f backends.VolumeFault) (fusefile.Fault, error) {
	switch f.Kind {
	case backends.FaultEIO:
		return fusefile.Fault{Reads: f.Reads, Writes: f.Writes, Flushes: f.Writes && f.Length == 0, Offset: f.Offset, Length: f.Length, Errno: syscall.EIO}, nil
	case backends.FaultReadOnly:
		// ext4 and xfs take no more writes once their journal cannot be written.
		return fusefile.Fault{Writes: true, Flushes: true, Errno: syscall.EIO}, nil
	case backends.FaultFull:
		return fusefile.Fault{Writes: true, Offset: f.Offset, Length: f.Length, Errno: syscall.ENOSPC}, nil
	case backends.FaultCorrupt:
		return fusefile.Fault{Reads: true, Offset: f.Offset, Length: f.Length, Corrupt: true}, nil
	}
	return fusefile.Fault{}, fmt.Errorf("fault %q is not known: %w", f.Kind, backends.ErrInvalid)
}

// breakPlain takes all I/O away from a plain volume, or gives it back.
func (b *Backend) breakPlain(_ context.Context, v backends.Volume, faults []backends.VolumeFault) (mechanisms []string, err error) {
	for _, f := range faults {
		if f.Kind != backends.FaultEIO || !f.Reads || !f.Writes || f.Offset != 0 || f.Length != 0 {
			return nil, fmt.Errorf("a plain volume can only fail all reads and writes at once; for %s create it with the parameter breakable=true: %w", describe(f), backends.ErrPrecondition)
		}
		mechanisms = append(mechanisms, limitMechanism)
	}
	d := b.attached(v.ID)
	if d == nil {
		return mechanisms, nil
	}
	if len(faults) > 0 {
		return mechanisms, d.Fence()
	}
	return nil, d.Unfence()
}

// describe names a fault with what it concerns.
func describe(f backends.VolumeFault) string {
	text := string(f.Kind)
	switch {
	case f.Kind != backends.FaultEIO:
		return text
	case !f.Reads:
		text += " of writes"
	case !f.Writes:
		text += " of reads"
	}
	if f.Length > 0 {
		text += fmt.Sprintf(" in %d bytes from %d on", f.Length, f.Offset)
	}
	return text
}
