// Package node is one node of the storage network: it stages and publishes
// volumes through a backend's node half and remembers what it did, so that it
// can answer and clean up while the array is away.
//
// A record comes before the work, and the kernel is asked before a record is
// believed: after a reboot all records are there and all mounts are gone.
//
// Calls that change one volume have to come one at a time (the locks of
// emulator/rpc see to that, and Options.Lock for Hold); Stats is safe at any
// time.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/internal/step"
)

// Array is what a node asks of the array: emulator/array in one process,
// emulator/link across processes.
type Array interface {
	// SizeOf returns the size of a volume in bytes, backends.ErrNotFound when
	// there is no such volume and backends.ErrUnavailable when the array does
	// not answer.
	SizeOf(ctx context.Context, volumeID string) (int64, error)
	// AttachLocal attaches a volume to this node without
	// ControllerPublishVolume and returns the publish context.
	AttachLocal(ctx context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error)
	// DetachLocal undoes AttachLocal.
	DetachLocal(ctx context.Context, volumeID, nodeID string) error
	// Authorize returns backends.ErrUnauthenticated where the class of a volume
	// demands secrets for a call (its method, such as NodeStageVolume) and
	// those that came, of which it gets the digests by their keys
	// (access.Digests), are others.
	Authorize(ctx context.Context, volumeID, method string, digests map[string]string) error
}

// Options describe a node.
type Options struct {
	// Name is the node's id.
	Name string
	// Backend is the node half of the emulator's backend. The node closes it.
	Backend backends.Node
	Array   Array
	// Store keeps the records.
	Store record.Store
	// StageDir is a directory of the node's own for volumes that are published
	// without having been staged, and for inline volumes. It is asked for each.
	StageDir func() (string, error)
	// Attaches says that callers attach with ControllerPublishVolume, Stages
	// that they call NodeStageVolume.
	Attaches, Stages bool
	// SharedSingleNode lets a single-node access mode have several targets.
	SharedSingleNode bool
	// Lock takes the lock of a volume for Hold, which does not come through
	// the node's own service.
	Lock func(ctx context.Context, volumeID string) (unlock func(), err error)
	// Log receives what start-up found; nil is silent.
	Log *slog.Logger
}

// Node is one node. It is safe for concurrent use within the rule of the
// package comment.
type Node struct {
	Options
	mu      sync.RWMutex
	volumes map[string]*Volume
	// lost are the records that could not be read, by their ids. Nobody knows
	// what is mounted for them.
	lost map[string]record.Damaged
	// health and storage are what SetHealth and SetStorageHealth said.
	health  map[string][]backends.Condition
	storage []backends.Condition
}

// Open loads a node from its records and undoes what a killed process held.
func Open(ctx context.Context, o Options) (*Node, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Lock == nil {
		o.Lock = func(context.Context, string) (func(), error) { return func() {}, nil }
	}
	n := &Node{Options: o, volumes: map[string]*Volume{}, lost: map[string]record.Damaged{}, health: map[string][]backends.Condition{}}
	damaged, err := n.Store.Load(ctx, volumeKind, func(id string, data []byte) error {
		v := new(Volume)
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("decode: %w: %w", err, record.ErrDamaged)
		}
		if recordID(v.ID) != id || v.StagingPath == "" || v.Staged.Path == "" {
			return fmt.Errorf("it says to be volume %q at %q, staged at %q: %w", v.ID, v.StagingPath, v.Staged.Path, record.ErrDamaged)
		}
		n.volumes[v.ID] = v
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open node %s: %w", n.Name, err)
	}
	for _, d := range damaged {
		switch {
		case errors.Is(d.Err, record.ErrNewer):
			return nil, fmt.Errorf("open node %s: %s; start the csiemu that wrote it: %w", n.Name, d.Path, d.Err)
		case errors.Is(d.Err, record.ErrForeign):
			n.Log.WarnContext(ctx, "something that is no record lies among the records", "path", d.Path)
		case errors.Is(d.Err, record.ErrOrphan):
			n.Log.WarnContext(ctx, "a directory without a record lies among the records", "path", d.Path)
		default:
			n.lost[d.ID] = d
			n.Log.ErrorContext(ctx, "record set aside; its volume may be mounted, and is left alone", "error", d.String())
		}
	}
	for _, v := range n.volumes {
		if v.Whole && v.Staged.Block {
			// Asking makes the backend hold the device, as the process before
			// this one did.
			if _, err := n.Backend.IsStaged(ctx, v.Staged); err != nil {
				n.Log.WarnContext(ctx, "block volume was not found as it was left", "volume", v.ID, "error", err)
			}
		}
		if !v.Held {
			continue
		}
		if err := n.endHold(ctx, v); err != nil {
			n.Log.ErrorContext(ctx, "writers of a volume are still held by a process that is gone", "volume", v.ID, "error", err)
		}
	}
	return n, nil
}

// endHold ends a hold that a killed process left.
func (n *Node) endHold(ctx context.Context, v *Volume) error {
	if err := n.Backend.Recover(ctx, v.Staged); err != nil {
		return err
	}
	if err := step.Done(ctx, "node.hold.recovered"); err != nil {
		return err
	}
	next := v.clone()
	next.Held = false
	return n.put(ctx, next)
}

// Close ends the node; volumes stay as they are.
func (n *Node) Close() error {
	return errors.Join(n.Backend.Close(), n.Store.Close())
}

// Volumes are the ids of the volumes that the node has a record of, in no
// order.
func (n *Node) Volumes() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	ids := make([]string, 0, len(n.volumes))
	for id := range n.volumes {
		ids = append(ids, id)
	}
	return ids
}

// Records are the records of all volumes, by id. They are not to be changed.
func (n *Node) Records() []*Volume {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := slices.Collect(maps.Values(n.volumes))
	slices.SortFunc(all, func(v, w *Volume) int { return strings.Compare(v.ID, w.ID) })
	return all
}

func (n *Node) get(id string) (*Volume, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	v, ok := n.volumes[id]
	return v, ok
}

// put records v and makes it what readers see. A *Volume is never changed once
// it was put.
func (n *Node) put(ctx context.Context, v *Volume) error {
	if err := n.Store.Put(ctx, volumeKind, recordID(v.ID), v); err != nil {
		return fmt.Errorf("record volume %s on node %s: %w", v.ID, n.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.volumes[v.ID] = v
	return nil
}

func (n *Node) forget(ctx context.Context, id string) error {
	if err := n.Store.Delete(ctx, volumeKind, recordID(id)); err != nil {
		return fmt.Errorf("remove the record of volume %s on node %s: %w", id, n.Name, err)
	}
	n.mu.Lock()
	delete(n.volumes, id)
	n.mu.Unlock()
	return step.Done(ctx, "node.volume.forgotten")
}

// checkLost refuses what could only be answered with the record of a volume that
// was set aside.
func (n *Node) checkLost(volumeID string) error {
	d, ok := n.lost[recordID(volumeID)]
	if !ok {
		return nil
	}
	return fmt.Errorf("the record of volume %s is damaged and was moved to %s; unmount what is left of the volume by hand, or repair the record, and start node %s again: %w",
		volumeID, d.MovedTo, n.Name, backends.ErrPrecondition)
}

// missing is the error for a volume that the node has no record of: the array
// knows whether it exists at all.
func (n *Node) missing(ctx context.Context, id string) error {
	if _, err := n.Array.SizeOf(ctx, id); errors.Is(err, backends.ErrNotFound) {
		return err
	}
	return fmt.Errorf("volume %q is not staged on node %s; call NodeStageVolume first: %w", id, n.Name, backends.ErrPrecondition)
}
