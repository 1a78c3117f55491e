package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
)

// injectBytes adds a fault about the bytes of volumes and breaks those that exist.
// If one of them cannot be broken so, the fault is not added and the error says
// why.
func (e *Emulator) injectBytes(ctx context.Context, r fault.Rule) (string, error) {
	if e.array == nil {
		return "", fmt.Errorf("add the fault %s: this process has no array: %w", r, backends.ErrPrecondition)
	}
	named := e.named(r)
	if r.Chain[0].Verb == fault.Heal {
		return "", e.heal(ctx, r, named)
	}
	id, err := e.faults.Add(r)
	if err != nil {
		return "", err
	}
	if err := e.breakAll(ctx, named); err != nil {
		removed := e.faults.Remove(id)
		return "", fmt.Errorf("add the fault %s: %w", r, errors.Join(err, removed, e.breakAll(context.WithoutCancel(ctx), named)))
	}
	return id, nil
}

// named are the ids of the volumes that a rule names.
func (e *Emulator) named(r fault.Rule) []string {
	var ids []string
	for _, v := range e.array.Volumes() {
		if r.Means(v.ID, v.Name) {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// heal ends the faults of volumes. Those that name no others are removed, also where
// their volumes do not exist yet; those with globs go on for the others.
func (e *Emulator) heal(ctx context.Context, r fault.Rule, named []string) error {
	for _, s := range e.faults.List() {
		if !s.Rule.AboutBytes() {
			continue
		}
		if r.Covers(s.Rule) || e.allOf(s.Rule, named) {
			if err := e.faults.Remove(s.ID); err != nil && !errors.Is(err, backends.ErrNotFound) {
				return err
			}
			continue
		}
		for _, id := range named {
			e.faults.Exempt(s.ID, id)
		}
	}
	return e.breakAll(ctx, append(named, e.broken.volumes()...))
}

// allOf reports whether a rule names volumes without globs, and only some of these.
func (e *Emulator) allOf(r fault.Rule, ids []string) bool {
	theirs := e.named(r)
	return len(theirs) > 0 && !r.Match.HasGlobs() && !slices.ContainsFunc(theirs, func(id string) bool { return !slices.Contains(ids, id) })
}

// breakAgain brings the volumes that suffer from faults to what is left of these.
func (e *Emulator) breakAgain(ctx context.Context) error {
	if e.array == nil {
		return nil
	}
	return e.breakAll(ctx, e.broken.volumes())
}

// breakAll brings volumes to what the faults say of them.
func (e *Emulator) breakAll(ctx context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		err := e.array.With(ctx, id, func(v *array.Volume) error { return e.breakLocked(ctx, v) })
		if errors.Is(err, backends.ErrNotFound) {
			e.broken.forget(id) // deleted
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// breakConnected gives its faults to a volume whose device is there: see
// array.Options.Connected.
func (e *Emulator) breakConnected(ctx context.Context, v *array.Volume) {
	if !e.faults.HasBytes() {
		return
	}
	e.broken.forget(v.ID)
	if err := e.breakLocked(ctx, v); err != nil {
		e.unbroken(ctx, v.ID, err)
	}
}

// unbroken tells that a volume cannot suffer from faults that were given to it
// before it existed.
func (e *Emulator) unbroken(ctx context.Context, volumeID string, err error) {
	e.log.WarnContext(ctx, "a volume does not suffer from its faults", "volume", volumeID, "error", err)
	e.broken.fail(fmt.Errorf("volume %s does not suffer from its faults: %w", volumeID, err))
}

// Unbroken are the latest faults of bytes that could not be given to a volume when
// it came into being.
func (e *Emulator) Unbroken() []error { return e.broken.failures() }

// breakNew gives its faults to a volume that was made or grown just now, as those of
// health need no device. It is a step around the call.
func (e *Emulator) breakNew(ctx context.Context, c *rpc.Call) error {
	err := c.Next(ctx)
	id := ""
	switch r := c.Reply.(type) {
	case *csi.CreateVolumeResponse:
		id = r.GetVolume().GetVolumeId()
	case *csi.ControllerExpandVolumeResponse:
		// A part of it is another part now.
		id = c.Request.(*csi.ControllerExpandVolumeRequest).GetVolumeId()
		e.broken.renew(id)
	}
	if id == "" || !e.faults.HasBytes() {
		return err
	}
	if breakErr := e.breakAll(ctx, []string{id}); breakErr != nil {
		e.unbroken(ctx, id, breakErr)
	}
	return err
}

// breakLocked brings a volume, which is locked, to what the faults say of it.
func (e *Emulator) breakLocked(ctx context.Context, v *array.Volume) error {
	firings := e.faults.OnBytes(v.ID, v.Name)
	if e.broken.by(v.ID) == idsOf(firings) {
		return nil
	}
	var faults []backends.VolumeFault
	var conditions []backends.Condition
	for _, f := range firings {
		if f.Action.Verb == fault.Health {
			conditions = append(conditions, backends.Condition{Status: backends.HealthStatus(f.Action.Status), Reason: f.Action.Reason})
			continue
		}
		faults = append(faults, volumeFault(f.Action, v.Layout.SizeBytes))
	}
	var mechanisms []string
	// There is something to do, or something to undo.
	if len(faults) > 0 || len(e.broken.of(v.ID)) > 0 {
		var err error
		if mechanisms, err = e.array.Break(ctx, v, faults); err != nil {
			return err
		}
	}
	e.array.SetFaultHealth(v.ID, conditions)
	e.broken.set(v.ID, idsOf(firings), mechanisms)
	return nil
}

// volumeFault is an action in the words of the backends.
func volumeFault(a fault.Action, size int64) backends.VolumeFault {
	f := backends.VolumeFault{Kind: backends.FaultKind(a.Verb), Offset: a.Offset, Length: a.Length, Latency: a.Duration}
	switch a.Verb {
	case fault.EIO:
		f.Reads, f.Writes = a.Only != "writes", a.Only != "reads"
	case fault.Full:
		const block = backends.Granularity
		f.Offset = int64(float64(size)*a.Level/100) / block * block
	}
	return f
}
