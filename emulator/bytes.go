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
	meant, err := e.meant(r)
	if err != nil {
		return "", err
	}
	if r.Chain[0].Verb == fault.Heal {
		return "", e.heal(ctx, meant)
	}
	id := e.faults.Add(r)
	if err := e.breakAll(ctx, meant); err != nil {
		removed := e.faults.Remove(id)
		return "", fmt.Errorf("add the fault %s: %w", r, errors.Join(err, removed, e.breakAll(context.WithoutCancel(ctx), meant)))
	}
	return id, nil
}

// meant are the volumes that a rule names.
func (e *Emulator) meant(r fault.Rule) ([]*array.Volume, error) {
	volumes, _, err := e.array.List("", 0)
	return slices.DeleteFunc(volumes, func(v *array.Volume) bool { return !r.Means(v.ID, v.Name) }), err
}

// heal removes all faults that volumes suffer from.
func (e *Emulator) heal(ctx context.Context, volumes []*array.Volume) error {
	for _, v := range volumes {
		for _, f := range e.faults.OnBytes(v.ID, v.Name) {
			if err := e.faults.Remove(f.ID); err != nil && !errors.Is(err, backends.ErrNotFound) {
				return err
			}
		}
	}
	return e.mend(ctx)
}

// mend brings the volumes that suffer from faults to what is left of these.
func (e *Emulator) mend(ctx context.Context) error {
	if e.array == nil {
		return nil
	}
	var suffering []*array.Volume
	for _, id := range e.broken.volumes() {
		v, err := e.array.Volume(id)
		if err != nil { // deleted
			e.broken.forget(id)
			continue
		}
		suffering = append(suffering, v)
	}
	return e.breakAll(ctx, suffering)
}

// breakAll brings volumes to what the faults say of them.
func (e *Emulator) breakAll(ctx context.Context, volumes []*array.Volume) error {
	var errs []error
	for _, v := range volumes {
		errs = append(errs, e.breakVolume(ctx, v))
	}
	return errors.Join(errs...)
}

// breakAgain gives the faults of a volume to it anew after a call that made the
// volume or its device. It comes after the locks of the call.
func (e *Emulator) breakAgain(ctx context.Context, c *rpc.Call) error {
	err := c.Next(ctx)
	id := ""
	switch r := c.Request.(type) {
	case *csi.CreateVolumeRequest:
		reply, _ := c.Reply.(*csi.CreateVolumeResponse)
		id = reply.GetVolume().GetVolumeId()
	case *csi.ControllerPublishVolumeRequest:
		id = r.GetVolumeId()
	case *csi.NodeStageVolumeRequest:
		if !e.profile.attaches() {
			id = r.GetVolumeId()
		}
	}
	if err != nil || id == "" || e.array == nil || !e.faults.HasBytes() {
		return err
	}
	v, err := e.array.Volume(id)
	if err != nil {
		return nil //nolint:nilerr // deleted since
	}
	e.broken.forget(id)
	if err := e.breakVolume(ctx, v); err != nil {
		e.log.WarnContext(ctx, "a volume does not suffer from its faults", "volume", id, "error", err)
	}
	return nil
}

// breakVolume brings one volume to what the faults say of it.
func (e *Emulator) breakVolume(ctx context.Context, v *array.Volume) error {
	firings := e.faults.OnBytes(v.ID, v.Name)
	e.broken.mu.Lock()
	was := e.broken.ids[v.ID]
	e.broken.mu.Unlock()
	if was == idsOf(firings) {
		return nil
	}
	var faults []backends.VolumeFault
	var sick []backends.Condition
	for _, f := range firings {
		if f.Action.Verb == fault.Health {
			sick = append(sick, backends.Condition{Status: backends.HealthStatus(f.Action.Status), Reason: f.Action.Reason})
			continue
		}
		faults = append(faults, volumeFault(f.Action, v.Layout.SizeBytes))
	}
	mechanisms, err := e.breakBytes(ctx, v.ID, faults)
	if err != nil {
		return err
	}
	e.array.SetFaultHealth(v.ID, sick)
	e.broken.set(v.ID, idsOf(firings), mechanisms)
	return nil
}

// breakBytes breaks the bytes of a volume, where there is anything to break or to
// heal.
func (e *Emulator) breakBytes(ctx context.Context, volumeID string, faults []backends.VolumeFault) ([]string, error) {
	e.broken.mu.Lock()
	suffers := len(e.broken.mechanisms[volumeID]) > 0
	e.broken.mu.Unlock()
	if len(faults) == 0 && !suffers {
		return nil, nil
	}
	return e.array.Break(ctx, volumeID, faults)
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
