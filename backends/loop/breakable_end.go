//go:build linux

package loop

import (
	"context"
	"errors"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/rmtree"
	"github.com/csiemu/csiemu/internal/step"
)

// holderPatience is how long a holder may take to end whose file nobody uses. One
// that does not answer takes the longest, until it is killed.
const holderPatience = 20 * time.Second

// free takes the device of a volume's attachment away, and what is under it.
func (b *Backend) free(ctx context.Context, v backends.Volume, bound *bound) error {
	if v.Breakable {
		if err := letGo(ctx, breakableDir(v)); err != nil {
			return err
		}
	}
	if bound.device != nil {
		if err := b.detach(ctx, bound, bound.device); err != nil {
			return err
		}
		bound.device = nil
	}
	return b.unserve(ctx, v, bound)
}

// letGo has everything go on that waits in the holder of dir, since the detach of
// a device writes out what is cached. A holder that does not answer is killed.
func letGo(ctx context.Context, dir string) error {
	err := fusefile.Drain(ctx, dir)
	if err != nil && ctx.Err() == nil {
		err = fusefile.Kill(ctx, dir)
	}
	return err
}

// unserve ends the holder of a breakable volume. Where the device is in use
// still, the holder serves it until that is let go.
func (b *Backend) unserve(ctx context.Context, v backends.Volume, bound *bound) error {
	if !v.Breakable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, holderPatience)
	defer cancel()
	defer b.reap()
	_ = bound.dropReleased() // one that does not answer is in use
	wait := len(bound.leaving) == 0
	if err := fusefile.Stop(ctx, breakableDir(v), v.ID, wait); err != nil {
		return err
	}
	if wait {
		bound.serving = nil
	}
	return step.Done(ctx, "loop.holder.stopped")
}

// removeHolder removes what Attach and Shape keep in the directory of a
// breakable volume. A device that is in use still goes on with its holder.
func (b *Backend) removeHolder(ctx context.Context, v backends.Volume, bound *bound) error {
	if !v.Breakable {
		return nil
	}
	if err := b.unserve(ctx, v, bound); err != nil { // the device may have gone since
		return err
	}
	return rmtree.Remove(ctx, breakableDir(v))
}

// keepProcess remembers a holder that this process has to reap.
func (b *Backend) keepProcess(p *fusefile.Holder) {
	b.reap()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes = append(b.processes, p)
}

// reap takes the exit status of the holders that have ended.
func (b *Backend) reap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var running []*fusefile.Holder
	for _, p := range b.processes {
		if !p.Reap() {
			running = append(running, p)
		}
	}
	b.processes = running
}

// closeServing ends the holder of a volume that must not outlive the backend.
// One whose file is in use ends when it is not.
func (b *Backend) closeServing(volumeID string, s *serving) error {
	if s == nil || !b.o.Autoclear {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	err := fusefile.Stop(ctx, s.dir, volumeID, true)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// closeProcesses lets go of all holders. Those that are tied to this process end
// when nothing uses their files any more. The caller holds mu.
func (b *Backend) closeProcesses() error {
	var errs []error
	for _, p := range b.processes {
		errs = append(errs, p.Close())
	}
	b.processes = nil
	return errors.Join(errs...)
}
