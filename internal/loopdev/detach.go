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
	case became == freed:
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
	gone    outcome = iota // not ours any more, perhaps bound by another
	freed                  // released by this call: the index is ours to use
	lingers                // somebody holds it
)

func (d *Device) detach(ctx context.Context) (outcome, error) {
	if armed, err := d.arm(); err != nil || !armed {
		return gone, err
	}
	// LOOP_CLR_FD asks for the release at the last close. Ours was the last, or
	// somebody else has the device open.
	if settled, became, err := d.settled(); settled {
		return became, err
	}
	if settled, became, err := d.wait(ctx); settled {
		return became, err
	}
	// Fenced even if the context is done: what is armed must not be written to.
	if err := d.limit(context.WithoutCancel(ctx), "fence", fencedSize()); err != nil && !errors.Is(err, ErrNotBound) {
		return lingers, err
	}
	// The user may have gone while the fence went up.
	if settled, became, err := d.settled(); settled {
		return became, err
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
	b, err := d.ask(fd)
	if err == nil && b == own {
		err = clearFD(fd)
	}
	return b == own, errors.Join(err, closeFD(fd))
}

// wait looks until the device is settled. It gives up after releasePatience, at
// the end of the context, and at once if the user is one that does not just
// look: a mount, or whoever else claims the device for himself.
func (d *Device) wait(ctx context.Context) (settled bool, became outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	for delay := 50 * time.Microsecond; pause(ctx, delay); delay = min(2*delay, 20*time.Millisecond) {
		if settled, became, err = d.settled(); settled {
			return settled, became, err
		}
		claimed, err := d.claimed()
		if err != nil {
			return true, lingers, err
		}
		if claimed {
			break
		}
	}
	return false, lingers, nil
}

// settled looks at the device once and reports whether there is anything left to
// wait for, and if not, the outcome.
func (d *Device) settled() (settled bool, became outcome, err error) {
	_, fd, err := d.nodes.open(d.Index, readOnly)
	if errors.Is(err, ErrNotBound) {
		// There is no such device, or its last closer is at work in the kernel.
		return !hasBackingFile(d.Index), freed, nil
	}
	if err != nil {
		return true, lingers, err
	}
	b, err := d.ask(fd)
	if err = errors.Join(err, closeFD(fd)); err != nil {
		return true, lingers, err
	}
	switch b {
	case unbound:
		return true, freed, nil
	case foreign:
		return true, gone, nil
	}
	return false, lingers, nil
}

// claimed reports whether somebody has the device, which is ours, exclusively.
func (d *Device) claimed() (claimed bool, err error) {
	err = d.with("look at", func(int) error {
		// Only while the device is open and ours: an exclusive opener makes the
		// mounts of others fail.
		_, fd, err := d.nodes.open(d.Index, exclusive)
		if errors.Is(err, unix.EBUSY) {
			claimed = true
			return nil
		}
		if err != nil {
			return err
		}
		return closeFD(fd)
	})
	if errors.Is(err, ErrNotBound) {
		return false, nil // settled meanwhile, as the next look will tell
	}
	return claimed, err
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
