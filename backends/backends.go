// Package backends is the contract between the emulator and whatever keeps the
// bytes of its volumes.
//
// A backend has two halves, because a cluster runs them in different
// processes: Backend is the half of the array (it owns bytes and devices), and
// Node is the half of a node (it formats, mounts and binds). They meet only in
// the publish context, a small map that Attach returns and Stage receives.
//
// The caller (emulator/array) keeps all records, names, capacity and locks: for
// one volume or snapshot it makes one call at a time, for different ones it
// calls concurrently. After a crash it repeats or undoes what its records say
// was under way, so every method also has to be right when it runs a second
// time over what a killed process left.
package backends

import (
	"context"
	"time"
)

// HoldLimit is how long Node.Hold lasts at most: writers who wait longer look
// like a broken machine.
const HoldLimit = 10 * time.Second

// Granularity is the unit, in bytes, of every volume size. It is the page size
// and the largest sector size that the kernel's loop devices take.
const Granularity = 4096

// Request is what a caller asks of a new volume, as far as it concerns its
// bytes.
type Request struct {
	// RequiredBytes and LimitBytes are CSI's capacity range; 0 means not set.
	RequiredBytes, LimitBytes int64
	// Block and Filesystem say which access types the volume must serve.
	Block, Filesystem bool
	// FSTypes are the file systems named by the capabilities, without
	// duplicates and without the empty string.
	FSTypes []string
	// Parameters are the StorageClass parameters that the array did not take
	// for itself. A backend refuses those that it does not know.
	Parameters map[string]string
	// MinBytes is the size of the snapshot or volume that is to be restored
	// or cloned; 0 for an empty volume. The result is never smaller.
	MinBytes int64
}

// Layout is how a backend will make a volume. It is part of the volume's
// record.
type Layout struct {
	// SizeBytes is the exact size: a multiple of Granularity.
	SizeBytes int64 `json:"sizeBytes"`
	// Block is true for a volume that serves raw block access only.
	Block bool `json:"block,omitempty"`
	// Thick is true where the space is taken at creation.
	Thick bool `json:"thick,omitempty"`
	// DirectIO is true where the device bypasses the page cache.
	DirectIO bool `json:"directIO,omitempty"`
	// Breakable is true where the volume's I/O passes a process of csiemu, for
	// faults, shaping and holding writes (BreakableBackend).
	Breakable bool `json:"breakable,omitempty"`
}

// Volume names the bytes of one volume.
type Volume struct {
	// ID is the volume's id, made by the array.
	ID string
	// Dir is the volume's own directory, which exists. The backend may keep
	// any files there but record.json and names that start with a dot.
	Dir string
	Layout
}

// Snapshot names the bytes of one snapshot. Its layout is that of its source
// at the moment of the cut.
type Snapshot struct {
	ID  string
	Dir string
	Layout
}

// Attachment is the array's wish that nodes see a volume.
type Attachment struct {
	// ID is unique to one attachment of a volume, at most 48 bytes of
	// [a-z0-9-]. All nodes that the volume is attached to share it. The
	// kernel keeps it as the device's name, which is how a device is known
	// again.
	ID string
	// ReadOnly asks for a device that refuses writes.
	ReadOnly bool
}

// Usage is the space that a volume or snapshot takes in the store.
type Usage struct {
	// AllocatedBytes are the bytes that the store holds for it now.
	AllocatedBytes int64
}

// Extent is a range of a volume's bytes.
type Extent struct {
	Offset, Length int64
}

// Backend keeps the bytes of volumes. Its methods may be called concurrently,
// for one volume or snapshot one at a time. All errors wrap one of the kinds of
// this package or are internal errors.
type Backend interface {
	// Name is the backend's name: loop, tmpfs, memory.
	Name() string

	// Plan settles the layout of a volume and touches nothing. ErrInvalid is
	// returned for parameters and file systems that the backend does not have,
	// ErrOutOfRange for sizes that it cannot make.
	Plan(Request) (Layout, error)

	// Create makes the volume's bytes: it reads as zeros, or is an empty file
	// system where the backend has no device. ErrExhausted is returned when the
	// store is full, and nothing is left then.
	Create(context.Context, Volume) error
	// Delete removes the volume's bytes and whatever device or mount holds
	// them. Bytes that are gone already are no error.
	Delete(context.Context, Volume) error
	// Grow makes the volume v.SizeBytes long, v carrying the new size. An
	// attached device shows the new size when Grow returns. A volume that has
	// the size already is no error; it never shrinks.
	Grow(ctx context.Context, v Volume) error

	// Attach makes the volume reachable for nodes and returns the publish
	// context. A volume that is attached with the same id already is no error
	// and gets the same context. ErrPrecondition is returned while an earlier
	// attachment's device is not released yet, ErrDataLoss when the bytes are
	// gone.
	Attach(context.Context, Volume, Attachment) (map[string]string, error)
	// Detach takes the volume away from all nodes. If something still uses the
	// device, its I/O fails from now on. Detached already is no error.
	Detach(context.Context, Volume, Attachment) error

	// Snapshot cuts v into s. The caller holds writers still, as far as it can.
	Snapshot(ctx context.Context, v Volume, s Snapshot) error
	// DeleteSnapshot removes a snapshot's bytes; gone already is no error.
	DeleteSnapshot(context.Context, Snapshot) error
	// Restore makes v, which is at least as long as s, with the bytes of s.
	Restore(ctx context.Context, s Snapshot, v Volume) error
	// Clone makes v, which is at least as long as src, with the bytes of src.
	// The caller holds writers of src still, as far as it can.
	Clone(ctx context.Context, src, v Volume) error

	// Usage says what a volume takes in the store, which is also what a
	// snapshot of it would take.
	Usage(context.Context, Volume) (Usage, error)
	// FreeBytes is the space that the store itself has left.
	FreeBytes(context.Context) (int64, error)

	// Node makes the half of a node.
	Node(NodeConfig) (Node, error)
	// Close ends the backend. Devices and mounts stay, unless the backend was
	// made to leave nothing behind.
	Close() error
}
