package backends

import (
	"context"
	"iter"
	"time"
)

// ExtentBackend is a backend that knows which bytes of a snapshot hold data.
type ExtentBackend interface {
	// Allocated yields the ranges of s that hold data and end after from, in
	// ascending order, not overlapping.
	Allocated(ctx context.Context, s Snapshot, from int64) iter.Seq2[Extent, error]
	// Changed yields the ranges of target that differ, or may differ, from
	// base, in the same way.
	Changed(ctx context.Context, base, target Snapshot, from int64) iter.Seq2[Extent, error]
}

// Shaping is how slow a breakable volume is made. The zero value leaves it as
// fast as it is.
type Shaping struct {
	// IOPS and BytesPerSecond limit reads and writes together; 0 is no limit.
	IOPS           int64 `json:"iops,omitempty"`
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Latency is added to each read and write.
	Latency time.Duration `json:"latency,omitempty"`
}

// BreakableBackend is a backend with volumes whose I/O passes a process of
// csiemu, which can slow it down and stop it: those with Layout.Breakable.
type BreakableBackend interface {
	// Shape makes v as slow as s says, at once where it is attached and from
	// each later Attach on. It replaces the shape that v had.
	Shape(ctx context.Context, v Volume, s Shaping) error
	// Pause makes all writes to v wait, whoever makes them and whatever they
	// came through, until release is called or HoldLimit has passed. What a
	// writer was told to be written before Pause returned is in the bytes of
	// v, and what waits is not. release is called once; its error says that
	// writes went on earlier. A volume that is not attached has no writers.
	Pause(ctx context.Context, v Volume) (release func() error, err error)
}

// Held is a volume with the attachment that the array recorded for it.
type Held struct {
	Volume
	// Attachment is nil when no node is attached.
	Attachment *Attachment
}

// Reopener is a backend that finds devices and mounts of an earlier process
// again. Reopen is called once, before any other method, with everything that
// the records explain: it adopts what exists, makes missing attachments anew
// (a reboot takes all of them), and frees what is its own and not explained.
// The error of one volume is given to report and does not stop the others.
type Reopener interface {
	Reopen(ctx context.Context, volumes []Held, snapshots []Snapshot, report func(volumeID string, err error)) error
}

// VolumeFault is something that is wrong with the bytes of a volume.
type VolumeFault struct {
	// Kind is what it is.
	Kind FaultKind
	// Reads and Writes say which I/O it concerns, for FaultEIO.
	Reads, Writes bool
	// Offset and Length are the range in bytes that it concerns; a Length of 0 is
	// everything from Offset on.
	Offset, Length int64
	// Latency is what each read and write takes longer, for FaultSlow.
	Latency time.Duration
}

// FaultKind is a kind of VolumeFault.
type FaultKind string

const (
	// FaultEIO fails I/O with EIO.
	FaultEIO FaultKind = "eio"
	// FaultReadOnly fails all writes, so that a file system turns itself
	// read-only under its writers.
	FaultReadOnly FaultKind = "readonly"
	// FaultFull fails writes to the range with ENOSPC.
	FaultFull FaultKind = "full"
	// FaultSlow delays I/O.
	FaultSlow FaultKind = "slow"
	// FaultGone takes the device away from its users.
	FaultGone FaultKind = "gone"
	// FaultCorrupt changes what is read from the range; what is stored stays.
	FaultCorrupt FaultKind = "corrupt"
)

// FaultBackend is a backend that can break the bytes of a volume under its users.
type FaultBackend interface {
	// Break makes v suffer from exactly these faults; none heals it. It returns
	// the mechanism that it used for each. ErrPrecondition says what a volume of
	// this kind cannot do, and nothing is changed then. Faults end with Detach
	// and Delete, and are given again by the caller after Attach.
	Break(ctx context.Context, v Volume, faults []VolumeFault) (mechanisms []string, err error)
}
