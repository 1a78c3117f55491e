package emulator

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/internal/step"
)

// inject does to a call what the fault that fires in it says. It comes before the
// locks, so that a call that sleeps or hangs is in nobody's way.
func (e *Emulator) inject(ctx context.Context, c *rpc.Call) error {
	f := e.firing(ctx)
	if err := e.unready.check(c.Request); err != nil {
		return err
	}
	if f == nil {
		return c.Next(ctx)
	}
	entryOf(ctx).Fault(f.String())
	return e.perform(ctx, c, *f)
}

// firing is the fault that changes the call of ctx, nil if none does.
func (e *Emulator) firing(ctx context.Context) *fault.Firing {
	f, fires := e.faults.Decide(entryOf(ctx).Entry())
	if !fires || f.Action.Verb == fault.OK || f.Ready {
		return nil
	}
	return &f
}

// perform is a fault that fires.
func (e *Emulator) perform(ctx context.Context, c *rpc.Call, f fault.Firing) error {
	switch a := f.Action; a.Verb {
	case fault.Return:
		message := a.Message
		if message == "" {
			message = fmt.Sprintf("the fault %s wants it so", f.ID)
		}
		return status.Error(a.Code, message)
	case fault.Sleep:
		return waitFor(ctx, c, f.Released, time.After(a.Duration))
	case fault.Hang:
		return waitFor(ctx, c, f.Released, nil)
	case fault.Drop:
		if err := c.Next(ctx); err != nil {
			return err
		}
		return status.Errorf(codes.Unavailable, "the reply of %s was lost by the fault %s, as if the connection had broken; call again", c.Name(), f.ID)
	case fault.Crash:
		return c.Next(step.With(ctx, func(_ context.Context, name string) error {
			if name == a.Step {
				e.crash(name)
			}
			return nil
		}))
	case fault.Partial:
		return c.Next(step.With(ctx, func(_ context.Context, name string) error {
			if name == a.Step {
				return fmt.Errorf("the fault %s stops it at %s: %w", f.ID, name, errPartial)
			}
			return nil
		}))
	case fault.After, fault.Polls:
		return e.delay(ctx, c, f)
	default:
		return c.Next(ctx)
	}
}

// errPartial is a failure in the middle of an operation: INTERNAL, like any other
// of which nobody thought.
var errPartial = status.Error(codes.Internal, "it failed half way")

// waitFor lets a call wait until one of the channels is ready, then serves it.
func waitFor(ctx context.Context, c *rpc.Call, released <-chan struct{}, over <-chan time.Time) error {
	select {
	case <-released:
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("%s: the caller gave up while a fault held the call: %w", c.Name(), ctx.Err())
	}
	return c.Next(ctx)
}

// delay makes slow progress of a call. What makes a snapshot is served, and the
// snapshot is not ready for a while; any other call is refused until it is.
func (e *Emulator) delay(ctx context.Context, c *rpc.Call, f fault.Firing) error {
	var ids func() []string
	switch c.Request.(type) {
	case *csi.CreateSnapshotRequest:
		ids = func() []string {
			r, _ := c.Reply.(*csi.CreateSnapshotResponse)
			return []string{r.GetSnapshot().GetSnapshotId()}
		}
	case *csi.CreateVolumeGroupSnapshotRequest:
		ids = func() (all []string) {
			r, _ := c.Reply.(*csi.CreateVolumeGroupSnapshotResponse)
			for _, s := range r.GetGroupSnapshot().GetSnapshots() {
				all = append(all, s.GetSnapshotId())
			}
			return all
		}
	default:
		return fmt.Errorf("%s is under way and takes its time, by the fault %s: %w", c.Name(), f.ID, backends.ErrAborted)
	}
	if err := c.Next(ctx); err != nil {
		return err
	}
	for _, id := range ids() {
		e.unready.begin(id, f)
	}
	return nil
}

// crashNow ends this process as kill -9 does.
func crashNow(string) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		os.Exit(crashStatus)
	}
	select {} // the signal is on its way
}

// crashStatus is the exit status of a process that was killed by SIGKILL.
const crashStatus = 137

// Inject adds a fault, which is active in every call that begins from now on, and
// returns its id.
func (e *Emulator) Inject(ctx context.Context, r fault.Rule) (id string, err error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	if r.AboutBytes() {
		return e.injectBytes(ctx, r)
	}
	return e.faults.Add(r)
}

// InjectText is Inject for a fault in the form of fault.Parse.
func (e *Emulator) InjectText(ctx context.Context, text string) (id string, err error) {
	r, err := fault.Parse(text)
	if err != nil {
		return "", err
	}
	return e.Inject(ctx, r)
}

// Faults are the faults that are there, with how often each has fired.
func (e *Emulator) Faults() []fault.Status { return e.faults.List() }

// RemoveFault removes a fault, lets go of the calls that hang on it, and heals the
// volumes that suffer from it.
func (e *Emulator) RemoveFault(ctx context.Context, id string) error {
	if err := e.faults.Remove(id); err != nil {
		return err
	}
	return e.breakAgain(ctx)
}

// ClearFaults is RemoveFault for all faults.
func (e *Emulator) ClearFaults(ctx context.Context) error {
	e.faults.Clear()
	return e.breakAgain(ctx)
}
