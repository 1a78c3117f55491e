package array

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name string
	// RequiredBytes and LimitBytes are CSI's capacity range; 0 means not set.
	RequiredBytes, LimitBytes int64
	Capabilities              []access.Capability
	Parameters                map[string]string
	MutableParameters         map[string]string
	Source                    Source
	// Requisite and Preferred are CSI's topology requirement.
	Requisite, Preferred []map[string]string
}

// Create makes a volume, or returns the one that has the name already if it is
// what the request asks for (backends.ErrExists if not).
func (a *Array) Create(ctx context.Context, req CreateRequest) (*Volume, error) {
	if half, ok := a.volumes.named(req.Name); ok && half.State == Creating {
		// An earlier attempt failed and could not be cleaned up then.
		if err := a.erase(ctx, half); err != nil {
			return nil, fmt.Errorf("create volume %q: clean up an earlier attempt: %w", req.Name, err)
		}
	}
	v, source, err := a.plan(req)
	if err != nil || v.State == Ready {
		return v, err
	}
	if err := a.pools.reserve(v.Pool, v.Layout.SizeBytes); err != nil {
		return nil, fmt.Errorf("create volume %q: %w", v.Name, err)
	}
	if err := a.make(ctx, v, source); err != nil {
		return nil, fmt.Errorf("create volume %q: %w", v.Name, err)
	}
	return a.Volume(v.ID)
}

// source is what a new volume is filled from; at most one field is set.
type source struct {
	snapshot *Snapshot
	volume   *Volume
}

// plan returns the ready volume of the request's name, or the record of a new
// one, and touches nothing.
func (a *Array) plan(req CreateRequest) (*Volume, source, error) {
	if v, ok := a.volumes.named(req.Name); ok {
		if err := a.compatible(v, req); err != nil {
			return nil, source{}, err
		}
		return v, source{}, nil
	}
	pool, demand, rest, err := a.splitParameters(req.Parameters)
	if err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	changes, err := parseMutable(req.MutableParameters)
	if err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	types := access.TypesOf(req.Capabilities)
	src, minBytes, err := a.sourceOf(req.Source, types)
	if err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	if req.RequiredBytes > 0 && req.RequiredBytes < minBytes {
		return nil, source{}, fmt.Errorf("create volume %q: %d bytes are less than the %d of its source: %w",
			req.Name, req.RequiredBytes, minBytes, backends.ErrOutOfRange)
	}
	layout, err := a.layout(backends.Request{
		RequiredBytes: req.RequiredBytes, LimitBytes: req.LimitBytes, MinBytes: minBytes,
		Block: types.Block, Filesystem: types.Filesystem, FSTypes: types.FSTypes, Parameters: rest,
	})
	if err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	if err := a.checkMutable(changes, layout); err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	accessible, err := a.place(req.Requisite, req.Preferred, src)
	if err != nil {
		return nil, source{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	return &Volume{
		ID: newID("vol-"), Name: req.Name, State: Creating, Seq: a.volumes.next(), Layout: layout, Pool: pool,
		Parameters: req.Parameters, Capabilities: req.Capabilities, Accessible: accessible,
		Source: req.Source, Demand: demand, Created: time.Now().UTC(),
		Mutable: req.MutableParameters, MutableAtCreation: req.MutableParameters, Health: changes.health,
	}, src, nil
}

// sourceOf finds what a volume is to be made from, and its size.
func (a *Array) sourceOf(s Source, types access.Types) (source, int64, error) {
	switch {
	case s.SnapshotID != "":
		snap, err := a.Snapshot(s.SnapshotID)
		if err != nil {
			return source{}, 0, fmt.Errorf("restore: %w", err)
		}
		return source{snapshot: snap}, snap.Layout.SizeBytes, sameContent("snapshot "+snap.ID, snap.Types, types)
	case s.VolumeID != "":
		v, err := a.Volume(s.VolumeID)
		if err != nil {
			return source{}, 0, fmt.Errorf("clone: source %w", err)
		}
		return source{volume: v}, v.Layout.SizeBytes, sameContent("volume "+v.ID, access.TypesOf(v.Capabilities), types)
	}
	return source{}, 0, nil
}

// sameContent refuses a file system where the source has another one.
func sameContent(what string, have, want access.Types) error {
	if !have.Filesystem || !want.Filesystem || len(have.FSTypes) == 0 {
		return nil
	}
	for _, t := range want.FSTypes {
		if !slices.Contains(have.FSTypes, t) {
			return fmt.Errorf("%s holds %v, not %s: %w", what, have.FSTypes, t, backends.ErrInvalid)
		}
	}
	return nil
}

// make records, fills and commits a planned volume for which space is reserved,
// or leaves nothing.
func (a *Array) make(ctx context.Context, v *Volume, src source) error {
	if err := a.put(ctx, v); err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return a.forget(ctx, v) }))
	}
	err := step.Done(ctx, "array.volume.creating")
	if err == nil {
		err = a.fill(ctx, v, src)
	}
	if err == nil {
		err = a.shape(ctx, v)
	}
	if err == nil {
		err = step.Done(ctx, "array.volume.filled")
	}
	if err == nil {
		ready := v.clone()
		ready.State = Ready
		err = a.put(ctx, ready)
	}
	if err != nil {
		return errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return a.erase(ctx, v) }))
	}
	return step.Done(ctx, "array.volume.ready")
}

func (a *Array) fill(ctx context.Context, v *Volume, src source) error {
	switch {
	case src.snapshot != nil:
		return a.backend.Restore(ctx, a.bytesOfSnapshot(src.snapshot), a.bytesOf(v))
	case src.volume != nil:
		// The source may have been attached or grown since it was found.
		from, err := a.Volume(src.volume.ID)
		if err != nil {
			return fmt.Errorf("clone: source %w", err)
		}
		return a.holding(ctx, []*Volume{from}, false, func(ctx context.Context) error {
			if err := a.backend.Clone(ctx, a.bytesOf(from), a.bytesOf(v)); err != nil {
				return err
			}
			return step.Done(ctx, "array.volume.cloned")
		})
	}
	return a.backend.Create(ctx, a.bytesOf(v))
}

// compatible returns nil if v is what a request for its name asks for.
func (a *Array) compatible(v *Volume, req CreateRequest) error {
	differs := func(field, have, want string) error {
		return fmt.Errorf("create volume %q: it exists with another %s (%s, asked for %s): %w", v.Name, field, have, want, backends.ErrExists)
	}
	size := v.Layout.SizeBytes
	switch {
	case v.State != Ready:
		return fmt.Errorf("create volume %q: its predecessor is being deleted: %w", v.Name, backends.ErrAborted)
	case req.RequiredBytes > size || (req.LimitBytes > 0 && req.LimitBytes < size):
		return differs("size", fmt.Sprint(size), fmt.Sprintf("%d to %d", req.RequiredBytes, req.LimitBytes))
	case !maps.Equal(v.Parameters, req.Parameters):
		return differs("set of parameters", fmt.Sprint(keys(v.Parameters)), fmt.Sprint(keys(req.Parameters)))
	case !maps.Equal(v.MutableAtCreation, req.MutableParameters):
		return differs("set of mutable parameters", fmt.Sprint(keys(v.MutableAtCreation)), fmt.Sprint(keys(req.MutableParameters)))
	case v.Source != req.Source:
		return differs("content source", fmt.Sprint(v.Source), fmt.Sprint(req.Source))
	case !satisfies(v.Accessible, req.Requisite):
		return differs("topology", fmt.Sprint(v.Accessible), fmt.Sprint(req.Requisite))
	}
	have, want := access.TypesOf(v.Capabilities), access.TypesOf(req.Capabilities)
	if have.Block != want.Block || have.Filesystem != want.Filesystem || !slices.Equal(have.FSTypes, want.FSTypes) {
		return differs("set of capabilities", fmt.Sprint(v.Capabilities), fmt.Sprint(req.Capabilities))
	}
	return nil
}

// keys lists the names of parameters for a message. Values may be sensitive.
func keys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// CanServe returns an error where the backend has no volume like v with a
// capability, as with a file system that it does not know.
func (a *Array) CanServe(v *Volume, c access.Capability) error {
	_, _, rest, err := a.splitParameters(v.Parameters)
	if err != nil {
		return err
	}
	types := access.TypesOf([]access.Capability{c})
	_, err = a.backend.Plan(backends.Request{
		RequiredBytes: v.Layout.SizeBytes, Block: types.Block, Filesystem: types.Filesystem, FSTypes: types.FSTypes, Parameters: rest,
	})
	return err
}
