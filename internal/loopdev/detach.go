//go:build linux

package loopdev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// releasePatience is how long Detach waits for an opener that looks at the
// device and goes: udev, a scan, a child of this process between fork and exec.
const releasePatience = 500 * time.Millisecond

// Detach releases the device and takes its index back. inUse is true when
// somebody still holds the device after a short wait: it is fenced then, and
// goes with its last user; Detach may be called again to ask. A device that is
// released already is no error.
//
// A context that ends during the wait ends the wait, not the work: the device
// is fenced as if its user had stayed.
func (p *Pool) Detach(ctx context.Context, d *Device) (inUse bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("detach loop device %s: %w", d.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	became, err := d.detach(ctx)
	switch {
	case became == ours:
		p.indexes.give(d.Index)
	case became == lingers && !d.lingering:
		d.lingering = true
		p.indexes.giveLater(d.Index)
	}
	if err != nil {
		return became == lingers, fmt.Errorf("detach loop device %s: %w", d.Name, err)
	}
	return became == lingers, nil
}

// outcome is what became of a device.
type outcome int

const (
	gone    outcome = iota // released before, perhaps bound by another since
	ours                   // released by this call: the index is free
	lingers                // somebody holds it
)

func (d *Device) detach(ctx context.Context) (outcome, error) {
	if armed, err := d.arm(); err != nil || !armed {
		return gone, err
	}
	// On this kernel LOOP_CLR_FD only asks for the release at the last close.
	// Ours was the last, or somebody else has the device open.
	wait, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	for delay := 50 * time.Microsecond; ; delay = min(2*delay, 20*time.Millisecond) {
		switch state, err := d.look(); {
		case err != nil:
			return gone, err
		case state == free:
			return ours, nil
		case state == foreign:
			return gone, nil
		case state == claimed:
			cancel() // a mount does not go by itself
		}
		if !pause(wait, delay) {
			break
		}
	}
	if err := d.limit(context.WithoutCancel(ctx), "fence", fencedSize()); err != nil && !errors.Is(err, ErrNotBound) {
		return lingers, err
	}
	// The user may have gone while the fence went up.
	switch state, err := d.look(); {
	case err != nil:
		return lingers, err
	case state == free:
		return ours, nil
	case state == foreign:
		return gone, nil
	}
	return lingers, nil
}

// arm asks for the release and lets go of the hold. It reports false if the
// device was not ours any more.
func (d *Device) arm() (bool, error) {
	fd := d.hold
	if !d.holding {
		var err error
		if _, fd, err = d.nodes.open(d.Index, readOnly); err != nil {
			if errors.Is(err, ErrNotBound) {
				return false, nil
			}
			return false, err
		}
	}
	d.holding = false
	err := d.verify(fd)
	if errors.Is(err, ErrNotBound) {
		return false, closeFD(fd)
	}
	if err == nil {
		err = clearFD(fd)
	}
	return err == nil, errors.Join(err, closeFD(fd))
}

// state is what a look at a device finds.
type state int

const (
	free    state = iota // bound to nothing
	foreign              // bound by another
	held                 // still ours, or just being released
	claimed              // still ours and mounted, or opened exclusively
)

func (d *Device) look() (state, error) {
	_, fd, err := d.nodes.open(d.Index, readOnly)
	if errors.Is(err, ErrNotBound) {
		// No such device, or its last closer is at work in the kernel.
		if hasBackingFile(d.Index) {
			return held, nil
		}
		return free, nil
	}
	if err != nil {
		return held, err
	}
	defer closeFD(fd)
	if err := d.verify(fd); errors.Is(err, ErrNotBound) {
		if _, err := unix.IoctlLoopGetStatus64(fd); errors.Is(err, unix.ENXIO) {
			return free, nil
		}
		return foreign, nil
	} else if err != nil {
		return held, err
	}
	// Asked only of a device that is ours and stays so while fd is open: an
	// exclusive opener makes the mounts of others fail.
	_, claim, err := d.nodes.open(d.Index, exclusive)
	if errors.Is(err, unix.EBUSY) {
		return claimed, nil
	}
	if err == nil {
		err = closeFD(claim)
	}
	return held, err
}

// Release lets go of an autoclear device without asking for its release: it
// goes with its last user. Other devices are not changed.
func (d *Device) Release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.holding {
		return nil
	}
	d.holding = false
	if err := closeFD(d.hold); err != nil {
		return fmt.Errorf("release loop device %s: %w", d.Name, err)
	}
	return nil
}
