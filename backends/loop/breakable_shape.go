//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// Shape notes how slow v is to be, then tells its holder. One request counts as
// one operation up to fusefile.MaxIOBytes, and delays are exact to about a
// millisecond. backends.ErrPrecondition is returned for a volume that is not
// breakable, backends.ErrInvalid for negative numbers.
func (b *Backend) Shape(ctx context.Context, v backends.Volume, s backends.Shaping) error {
	if err := b.shape(ctx, v, s); err != nil {
		return fmt.Errorf("shape volume %s: %w", v.ID, err)
	}
	return nil
}

func (b *Backend) shape(ctx context.Context, v backends.Volume, s backends.Shaping) error {
	if err := requireBreakable(v); err != nil {
		return err
	}
	if err := (fusefile.Behaviour{Shape: s}).Check(); err != nil {
		return err
	}
	dir := breakableDir(v)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := writeNote(ctx, dir, shapeName, s, b.o.Sync); err != nil {
		return err
	}
	if err := step.Done(ctx, "loop.shape.noted"); err != nil {
		return err
	}
	st, err := fusefile.Ask(ctx, dir)
	if errors.Is(err, fusefile.ErrNotServing) {
		return nil // from the next Attach on
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, backends.ErrUnavailable)
	}
	return reshape(ctx, dir, st.Behaviour, s)
}

func requireBreakable(v backends.Volume) error {
	if !v.Breakable {
		return fmt.Errorf("its I/O passes no process of csiemu; create it with the parameter breakable=true: %w", backends.ErrPrecondition)
	}
	return nil
}

// reshape gives the holder of dir, which behaves so, another shape.
func reshape(ctx context.Context, dir string, have fusefile.Behaviour, want backends.Shaping) error {
	if have.Shape == want {
		return nil
	}
	have.Shape = want
	return fusefile.Behave(ctx, dir, have)
}

// flushServed flushes the device of a breakable volume as fast as it can be: a slow
// one would keep this process from ending, as nothing interrupts a flush.
func flushServed(ctx context.Context, dir string, d *loopdev.Device) error {
	st, err := fusefile.Ask(ctx, dir)
	if err != nil {
		return fmt.Errorf("%w: %w", err, backends.ErrUnavailable)
	}
	fast := st.Behaviour
	fast.Shape, fast.Delay = backends.Shaping{}, 0
	if fast.Shape == st.Behaviour.Shape && fast.Delay == st.Behaviour.Delay {
		return d.Flush()
	}
	if err := fusefile.Behave(ctx, dir, fast); err != nil {
		return err
	}
	err = d.Flush()
	return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return fusefile.Behave(ctx, dir, st.Behaviour) }))
}

// Pause holds the writes to the device of v, after it was flushed: that takes as
// long as the volume's shape makes it. backends.ErrPrecondition is returned for a
// volume that is not breakable, backends.ErrUnavailable when its holder is dead.
func (b *Backend) Pause(ctx context.Context, v backends.Volume) (func() error, error) {
	release, err := b.pause(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("pause volume %s: %w", v.ID, err)
	}
	return release, nil
}

func (b *Backend) pause(ctx context.Context, v backends.Volume) (func() error, error) {
	if err := requireBreakable(v); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := b.attached(v.ID)
	if d == nil {
		return func() error { return nil }, nil
	}
	// What was written through the page cache of the device was told to be
	// written, too.
	if err := flushServed(ctx, breakableDir(v), d); err != nil {
		return nil, fmt.Errorf("flush device %s: %w", d.Path(), err)
	}
	p, err := fusefile.PauseWrites(ctx, breakableDir(v), backends.HoldLimit)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, backends.ErrUnavailable)
	}
	bound := b.of(v.ID) // kept, as the volume may be deleted before it is released
	b.countPause(bound, 1)
	counted := sync.OnceFunc(func() { b.countPause(bound, -1) })
	return func() error {
		counted()
		if err := p.Resume(); err != nil {
			return fmt.Errorf("release volume %s: %w", v.ID, err)
		}
		return nil
	}, nil
}

func (b *Backend) countPause(d *bound, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.paused += n
}

// isPaused says whether writes to a volume are held by this process. Its device
// was flushed then, and a flush would wait.
func (b *Backend) isPaused(volumeID string) bool {
	d := b.of(volumeID)
	b.mu.Lock()
	defer b.mu.Unlock()
	return d.paused > 0
}
