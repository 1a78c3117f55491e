// Package memory is a backend that keeps no bytes: its volumes are records, and
// publishing one makes a plain directory or file.
//
// It works on every operating system, without privileges, and inside
// testing/synctest: it starts no goroutine and reads no clock. It is for tests
// of callers, which get every answer of the driver and see every path appear
// and vanish, but whose bytes live no longer than a publication, are seen at no
// other target, and have no limit.
package memory

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/csiemu/csiemu/backends"
)

// Options describe a backend. There is nothing to choose yet.
type Options struct{}

// Backend is the half of the array. It knows of each volume what a kernel would
// know, so that a node in the same process is refused what production refuses:
// staging a volume that is not attached any more. Its methods may be called
// concurrently.
type Backend struct {
	mu      sync.Mutex
	volumes map[string]*volume
	// whole is set in the process of the array, which knows all volumes.
	whole bool
}

// volume is what stands for the device of a volume.
type volume struct {
	sizeBytes  int64
	attachment *backends.Attachment
}

var (
	_ backends.Backend  = (*Backend)(nil)
	_ backends.Reopener = (*Backend)(nil)
)

// New makes a backend.
func New(Options) *Backend { return &Backend{volumes: map[string]*volume{}} }

// Name is "memory".
func (*Backend) Name() string { return "memory" }

// of returns what is known of v, with the size that v carries.
func (b *Backend) of(v backends.Volume) *volume {
	known := b.volumes[v.ID]
	if known == nil {
		known = &volume{}
		b.volumes[v.ID] = known
	}
	known.sizeBytes = max(known.sizeBytes, v.SizeBytes)
	return known
}

// note keeps the size of v, unless ctx has ended.
func (b *Backend) note(ctx context.Context, what string, v backends.Volume) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s volume %s: %w", what, v.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(v)
	return nil
}

// Create has no bytes to make.
func (b *Backend) Create(ctx context.Context, v backends.Volume) error {
	return b.note(ctx, "create", v)
}

// Delete forgets the volume.
func (b *Backend) Delete(ctx context.Context, v backends.Volume) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete volume %s: %w", v.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.volumes, v.ID)
	return nil
}

// Grow keeps the new size, which nodes of this process see at once.
func (b *Backend) Grow(ctx context.Context, v backends.Volume) error { return b.note(ctx, "grow", v) }

// The keys of the publish context.
const (
	// AttachmentKey is the attachment's id, as with package loop.
	AttachmentKey = "csiemu.dev/attachment"
	// SizeKey is the volume's size in bytes: there is no device to ask.
	SizeKey = "csiemu.dev/size"
)

// Attach remembers the attachment.
func (b *Backend) Attach(ctx context.Context, v backends.Volume, a backends.Attachment) (map[string]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("attach volume %s as %s: %w", v.ID, a.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.of(v)
	if have := known.attachment; have != nil && *have != a {
		return nil, fmt.Errorf("attach volume %s as %s: it is attached as %s, read-only %t: %w", v.ID, a.ID, have.ID, have.ReadOnly, backends.ErrPrecondition)
	}
	known.attachment = &a
	return map[string]string{AttachmentKey: a.ID, SizeKey: strconv.FormatInt(known.sizeBytes, 10)}, nil
}

// Detach forgets the attachment. Targets stay usable: a plain directory cannot
// be taken away from those who use it.
func (b *Backend) Detach(ctx context.Context, v backends.Volume, a backends.Attachment) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("detach volume %s: %w", v.ID, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.volumes[v.ID]; known != nil && known.attachment != nil && known.attachment.ID == a.ID {
		known.attachment = nil
	}
	return nil
}

// look returns the size of a volume and the id of its attachment, "" for none.
// ok is false for a volume of which this process cannot know: it is a node only.
func (b *Backend) look(id string) (sizeBytes int64, attachment string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[id]
	if v == nil {
		return 0, "", b.whole
	}
	if v.attachment != nil {
		attachment = v.attachment.ID
	}
	return v.sizeBytes, attachment, true
}

// Snapshot has no bytes to cut.
func (*Backend) Snapshot(ctx context.Context, v backends.Volume, s backends.Snapshot) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("snapshot volume %s to %s: %w", v.ID, s.ID, err)
	}
	return nil
}

// DeleteSnapshot has no bytes to remove.
func (*Backend) DeleteSnapshot(context.Context, backends.Snapshot) error { return nil }

// Restore has no bytes to copy.
func (b *Backend) Restore(ctx context.Context, _ backends.Snapshot, v backends.Volume) error {
	return b.note(ctx, "restore", v)
}

// Clone has no bytes to copy.
func (b *Backend) Clone(ctx context.Context, _, v backends.Volume) error {
	return b.note(ctx, "clone to", v)
}

// Usage is nothing. What volumes may take together is the business of the
// array's pools, which count their sizes.
func (*Backend) Usage(context.Context, backends.Volume) (backends.Usage, error) {
	return backends.Usage{}, nil
}

// FreeBytes has no end.
func (*Backend) FreeBytes(context.Context) (int64, error) { return math.MaxInt64, nil }

// Reopen takes over what the records say; there is nothing else that it could
// find.
func (b *Backend) Reopen(ctx context.Context, volumes []backends.Held, _ []backends.Snapshot, _ func(string, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reopen memory store: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = true
	for _, v := range volumes {
		b.of(v.Volume).attachment = v.Attachment
	}
	return nil
}

// Close has nothing to end.
func (*Backend) Close() error { return nil }
