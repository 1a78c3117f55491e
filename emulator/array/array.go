// Package array is the emulated storage system: it owns the records of volumes
// and snapshots, the capacity pools and the attachments of volumes to nodes,
// and has a backend keep the bytes.
//
// Intent is recorded before the world is changed, so that Open can finish or
// undo what a killed process had under way.
//
// The array expects that calls which change one volume or snapshot come one at
// a time (the locks of emulator/rpc see to that); reads and calls for different
// objects are safe at any time.
package array

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/internal/step"
)

// Holder keeps the bytes of a volume still on a node while they are copied.
// emulator/node implements it in one process, emulator/link across processes.
type Holder interface {
	// Hold stops changes of a volume on a node, as far as the node can. The
	// release is called once; its error says that the bytes were not still all
	// the time. backends.ErrUnavailable is returned when the node does not
	// answer, backends.ErrHeld when the volume is still already, and
	// backends.ErrPrecondition when it cannot be held as exactly as asked
	// (backends.Hold.Exact).
	Hold(ctx context.Context, nodeID, volumeID string, exact bool) (release func(context.Context) error, err error)
}

// Options describe an array.
type Options struct {
	Backend backends.Backend
	Store   record.Store
	// Pools are the capacity pools and their sizes in bytes.
	Pools map[string]int64
	// DefaultPool is the pool of volumes whose parameters name none.
	DefaultPool string
	// NodeTopologyKey is set where volumes live on one node: it is the key of
	// the segment that names the node.
	NodeTopologyKey string
	// Topology says whether volumes have an accessible topology at all.
	Topology bool
	// Holder reaches the nodes.
	Holder Holder
	// Lock takes the lock of a volume for a change that does not come through
	// the array's own service: a local attachment.
	Lock func(ctx context.Context, volumeID string) (unlock func(), err error)
	// Connected is called when the device of a volume is there, new or not, with
	// the volume's lock held; nil for nobody.
	Connected func(ctx context.Context, v *Volume)
	// Log receives what start-up found; nil is silent.
	Log *slog.Logger
}

// Array is the storage system. It is safe for concurrent use within the rule of
// the package comment.
type Array struct {
	id        string
	backend   backends.Backend
	store     record.Store
	holder    Holder
	lock      func(context.Context, string) (func(), error)
	connected func(context.Context, *Volume)
	log       *slog.Logger
	pools     *pools
	topology  bool
	nodeKey   string
	volumes   *catalog[*Volume]
	snapshots *catalog[*Snapshot]
	groups    *catalog[*Group]
	// finishing is held while records of a group's members are written.
	finishing sync.Mutex
	mu        sync.Mutex
	// nodes are the known nodes, present those of them that this process or a
	// connected one serves; attached counts the attachments of each.
	nodes    map[string]Node
	present  map[string]bool
	attached map[string]int64
	// lingering are devices whose nodes are gone from the record and whose
	// detaching failed; the next call for the volume tries again.
	lingering map[string]backends.Attachment
	// faultHealth is what faults say is wrong with volumes.
	faultHealth map[string][]backends.Condition
	// unfound are the attached volumes whose device start-up could not bring back,
	// with the reason, until they are attached anew, detached or deleted.
	unfound map[string]error
}

// Open loads an array from its store, finishes or undoes what an earlier
// process had under way, and makes recorded attachments work again.
func Open(ctx context.Context, o Options) (*Array, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Lock == nil {
		o.Lock = func(context.Context, string) (func(), error) { return func() {}, nil }
	}
	if o.Connected == nil {
		o.Connected = func(context.Context, *Volume) {}
	}
	a := &Array{
		backend: o.Backend, store: o.Store, holder: o.Holder, lock: o.Lock, connected: o.Connected, log: o.Log,
		pools: newPools(o.Pools, o.DefaultPool), topology: o.Topology, nodeKey: o.NodeTopologyKey,
		volumes: newCatalog[*Volume](), snapshots: newCatalog[*Snapshot](), groups: newCatalog[*Group](),
		nodes: map[string]Node{}, present: map[string]bool{}, attached: map[string]int64{}, lingering: map[string]backends.Attachment{}, faultHealth: map[string][]backends.Condition{}, unfound: map[string]error{},
	}
	if err := a.recover(ctx); err != nil {
		return nil, fmt.Errorf("open array: %w", err)
	}
	return a, nil
}

// SetNode makes a node known and present, or changes what is known of it. Known
// nodes keep their attachments; volumes are placed on present ones.
func (a *Array) SetNode(ctx context.Context, n Node) error {
	if err := a.store.Put(ctx, nodeKind, nodeRecordID(n.ID), n); err != nil {
		return fmt.Errorf("record node %s: %w", n.ID, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes[n.ID], a.present[n.ID] = n, true
	return step.Done(ctx, "array.node.recorded")
}

// NodeGone says that nobody serves a node any more. It stays known.
func (a *Array) NodeGone(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.present, id)
}

// Volume returns a volume's record, or backends.ErrNotFound.
func (a *Array) Volume(id string) (*Volume, error) {
	v, ok := a.volumes.get(id)
	if !ok || v.State != Ready {
		return nil, fmt.Errorf("volume %q: %w", id, backends.ErrNotFound)
	}
	return v, nil
}

// Named reports whether there is a volume with a name, whatever its state.
func (a *Array) Named(name string) bool {
	_, ok := a.volumes.named(name)
	return ok
}

// SizeOf returns the size of a volume in bytes, or backends.ErrNotFound.
func (a *Array) SizeOf(_ context.Context, volumeID string) (int64, error) {
	v, err := a.Volume(volumeID)
	if err != nil {
		return 0, err
	}
	return v.Layout.SizeBytes, nil
}

// Snapshot returns a snapshot's record, or backends.ErrNotFound.
func (a *Array) Snapshot(id string) (*Snapshot, error) {
	s, ok := a.snapshots.get(id)
	if !ok || s.State != Ready || a.goes(s) {
		return nil, fmt.Errorf("snapshot %q: %w", id, backends.ErrNotFound)
	}
	return s, nil
}

// put records v and makes it what readers see.
func (a *Array) put(ctx context.Context, v *Volume) error {
	if err := a.store.Put(ctx, volumeKind, v.ID, v); err != nil {
		return fmt.Errorf("record volume %s: %w", v.ID, err)
	}
	a.volumes.put(v)
	return nil
}

func (a *Array) bytesOf(v *Volume) backends.Volume {
	return backends.Volume{ID: v.ID, Dir: a.store.Path(volumeKind, v.ID), Layout: v.Layout}
}

func (a *Array) bytesOfSnapshot(s *Snapshot) backends.Snapshot {
	return backends.Snapshot{ID: s.ID, Dir: a.store.Path(snapshotKind, s.ID), Layout: s.Layout}
}

// newID makes an id that no other array ever makes.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return prefix + hex.EncodeToString(b[:])
}
