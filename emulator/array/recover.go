package array

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/internal/step"
)

// identity is the array's own record.
type identity struct {
	ID string `json:"id"`
	// Backend is the name of the backend that keeps the bytes.
	Backend string `json:"backend"`
}

const (
	arrayKind = "array"
	arrayID   = "self"
)

// recover brings the world to what the records say.
func (a *Array) recover(ctx context.Context) error {
	if err := a.identify(ctx); err != nil {
		return err
	}
	volumes, err := load[Volume](ctx, a, volumeKind)
	if err != nil {
		return err
	}
	snapshots, err := load[Snapshot](ctx, a, snapshotKind)
	if err != nil {
		return err
	}
	groups, err := load[Group](ctx, a, groupKind)
	if err != nil {
		return err
	}
	nodes, err := load[Node](ctx, a, nodeKind)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		a.nodes[n.ID] = *n
	}
	if err := a.reopen(ctx, volumes, snapshots); err != nil {
		return err
	}
	if err := step.Done(ctx, "array.reopened"); err != nil {
		return err
	}
	for _, v := range volumes {
		a.volumes.put(v)
		if err := a.settle(ctx, v); err != nil {
			a.log.ErrorContext(ctx, "volume is not as its record says", "volume", v.ID, "state", v.State, "error", err)
		}
	}
	for _, g := range groups {
		a.groups.put(g)
	}
	for _, s := range snapshots {
		a.snapshots.put(s)
		a.pools.adopt(s.Pool, s.ReservedBytes)
		if g, ok := a.groups.get(s.GroupID); s.State == Ready || (ok && g.State == Ready) {
			continue
		}
		if err := a.eraseSnapshot(ctx, s); err != nil {
			a.log.ErrorContext(ctx, "snapshot is not removed yet", "snapshot", s.ID, "state", s.State, "error", err)
		}
	}
	for _, g := range groups {
		if err := a.settleGroup(ctx, g); err != nil {
			a.log.ErrorContext(ctx, "group snapshot is not as its record says", "group", g.ID, "state", g.State, "error", err)
		}
	}
	return nil
}

// settleGroup finishes a group snapshot that is committed, and removes any other.
func (a *Array) settleGroup(ctx context.Context, g *Group) error {
	if g.State != Ready {
		return a.eraseGroup(ctx, g)
	}
	_, err := a.finishGroup(ctx, g)
	return err
}

// settle undoes a creation, finishes a deletion or a growth, and counts what
// is ready.
func (a *Array) settle(ctx context.Context, v *Volume) error {
	a.pools.adopt(v.Pool, v.Layout.SizeBytes)
	if v.State != Ready {
		return a.erase(ctx, v)
	}
	for _, t := range v.Attachments {
		a.attached[t.NodeID]++
	}
	err := a.shape(ctx, v) // which a killed process may have recorded only
	if v.Growing {
		_, growErr := a.grow(ctx, v)
		err = errors.Join(err, growErr)
	}
	return err
}

// reopen tells the backend which devices and mounts the records explain.
func (a *Array) reopen(ctx context.Context, volumes []*Volume, snapshots []*Snapshot) error {
	r, ok := a.backend.(backends.Reopener)
	if !ok {
		return nil
	}
	var held []backends.Held
	for _, v := range volumes {
		if v.State == Ready {
			held = append(held, backends.Held{Volume: a.bytesOf(v), Attachment: v.Device})
		}
	}
	var kept []backends.Snapshot
	for _, s := range snapshots {
		// Those of a group that is committed are whole, whatever their own
		// records say yet.
		if s.State == Ready || s.GroupID != "" {
			kept = append(kept, a.bytesOfSnapshot(s))
		}
	}
	err := r.Reopen(ctx, held, kept, func(volumeID string, err error) {
		a.log.WarnContext(ctx, "volume was not found as it was left", "volume", volumeID, "error", err)
		a.unfound[volumeID] = err
	})
	if err != nil {
		return fmt.Errorf("find devices and mounts again: %w", err)
	}
	return nil
}

// identify reads the array's id, or makes one.
func (a *Array) identify(ctx context.Context) error {
	known, err := load[identity](ctx, a, arrayKind)
	if err != nil {
		return err
	}
	if len(known) > 0 {
		if have := known[0].Backend; have != a.backend.Name() {
			return fmt.Errorf("the state directory holds volumes of backend %s, not %s; give it that backend, or another directory: %w",
				have, a.backend.Name(), backends.ErrInvalid)
		}
		a.id = known[0].ID
		return nil
	}
	a.id = newID("array-")
	if err := a.store.Put(ctx, arrayKind, arrayID, identity{ID: a.id, Backend: a.backend.Name()}); err != nil {
		return fmt.Errorf("record the array's id: %w", err)
	}
	return step.Done(ctx, "array.identified")
}

// checked is a record that can tell whether it is what its place says.
type checked interface {
	// check is given the id of the record's place.
	check(id string) error
}

// load reads all records of a kind. A damaged one is set aside and reported,
// and does not stop the others.
func load[T any, P interface {
	*T
	checked
}](ctx context.Context, a *Array, kind string) ([]*T, error) {
	var out []*T
	names := map[string]string{}
	damaged, err := a.store.Load(ctx, kind, func(id string, data []byte) error {
		v := new(T)
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("decode: %w: %w", err, record.ErrDamaged)
		}
		if err := P(v).check(id); err != nil {
			return fmt.Errorf("%w: %w", err, record.ErrDamaged)
		}
		if o, ok := any(v).(object); ok {
			_, name, _ := o.key()
			if other := names[name]; other != "" {
				return fmt.Errorf("its name %q is that of %s: %w", name, other, record.ErrDamaged)
			}
			names[name] = id
		}
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", kind, err)
	}
	return out, a.report(ctx, kind, damaged)
}

// report logs what could not be loaded, and refuses to go on where what a record
// stands for would be taken for something that no record explains.
func (a *Array) report(ctx context.Context, kind string, damaged []record.Damaged) error {
	for _, d := range damaged {
		switch {
		case errors.Is(d.Err, record.ErrNewer):
			return fmt.Errorf("load %s: %s; start the csiemu that wrote it, or give this one another state directory: %w", kind, d.Path, d.Err)
		case errors.Is(d.Err, record.ErrForeign):
			a.log.WarnContext(ctx, "something that is no record lies among the records", "path", d.Path)
		case errors.Is(d.Err, record.ErrOrphan) && d.MovedTo == "":
			a.log.WarnContext(ctx, "what was deleted is not gone yet; the next start tries again", "path", d.Path)
		case d.Path != "" && d.MovedTo == "":
			return fmt.Errorf("load %s: set the damaged record at %s aside: %w", kind, d.Path, d.Err)
		default:
			a.log.ErrorContext(ctx, "record set aside", "error", d.String())
		}
	}
	return nil
}
