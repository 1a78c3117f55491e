//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// readerSuffix stands between the attachment and the node in the name of a
// read-only device over the device of an attachment.
const readerSuffix = "-ro-"

// readers are the read-only loop devices that a node puts over writable ones for
// read-only publications. Each has the name of its attachment and one of the
// node, as another node's mounts cannot be seen from here; by that name a later
// process finds it again.
type readers struct {
	pool      *loopdev.Pool
	autoclear bool
	suffix    string
	held      *holds

	mu sync.Mutex
	// byAttachment is nil until the first use, which scans once. Calls for one
	// attachment come one at a time, so only the map needs the lock.
	byAttachment map[string]*loopdev.Device
}

func newReaders(o loopdev.Options, autoclear bool, held *holds) (*readers, error) {
	// A directory has one identity in all containers of this kernel.
	id, err := imagefile.IdentityAt(o.NodeDir)
	if err != nil {
		return nil, err
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, id.Dev, " ", id.Inode) // a hash takes everything
	pool, err := loopdev.NewPool(o)
	if err != nil {
		return nil, err
	}
	return &readers{pool: pool, autoclear: autoclear, held: held, suffix: fmt.Sprintf("%s%08x", readerSuffix, h.Sum32())}, nil
}

// load finds the devices of an earlier process.
func (r *readers) load(ctx context.Context) error {
	if r.byAttachment != nil {
		return nil
	}
	all, err := r.pool.Scan(ctx)
	if err != nil {
		return fmt.Errorf("look for read-only devices: %w", err)
	}
	found := map[string]*loopdev.Device{}
	for _, st := range all {
		attachment, ok := strings.CutSuffix(st.Name, r.suffix)
		if !ok || !st.ReadOnly {
			continue
		}
		d, err := r.pool.Adopt(st.Index, st.Name)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue
		}
		if err != nil {
			return err
		}
		found[attachment] = d
	}
	r.byAttachment = found
	return nil
}

// known returns the device of an attachment, or nil.
func (r *readers) known(ctx context.Context, attachment string) (*loopdev.Device, error) {
	r.mu.Lock()
	err := r.load(ctx)
	d := r.byAttachment[attachment]
	r.mu.Unlock()
	if d == nil || err != nil {
		return nil, err
	}
	_, err = statusOf(d)
	if errors.Is(err, loopdev.ErrNotBound) {
		return nil, nil
	}
	return d, err
}

func (r *readers) set(attachment string, d *loopdev.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == nil {
		delete(r.byAttachment, attachment)
		return
	}
	r.byAttachment[attachment] = d
}

// get returns the read-only device over the device of s, and makes it if there
// is none.
func (r *readers) get(ctx context.Context, s backends.Staged) (*loopdev.Device, error) {
	d, err := r.known(ctx, s.DeviceID)
	if err != nil {
		return nil, err
	}
	if d != nil {
		return d, r.held.hold(s.VolumeID, d.Name, d.Path())
	}
	below, err := os.Open(s.Device)
	if err != nil {
		return nil, fmt.Errorf("make read-only device: %w", err)
	}
	defer below.Close()
	d, err = r.pool.Attach(ctx, below, loopdev.Config{Name: s.DeviceID + r.suffix, ReadOnly: true, Autoclear: r.autoclear})
	if err != nil {
		return nil, fmt.Errorf("make read-only device: %w", err)
	}
	r.set(s.DeviceID, d)
	err = step.Done(ctx, "loop.reader.bound")
	if err == nil {
		err = r.held.hold(s.VolumeID, d.Name, d.Path())
	}
	if err != nil {
		return nil, errors.Join(err, r.drop(context.WithoutCancel(ctx), s.DeviceID))
	}
	return d, nil
}

// isAt says whether the device with that number is the one over the device of
// s, and holds it then.
func (r *readers) isAt(ctx context.Context, s backends.Staged, number uint64) (bool, error) {
	d, err := r.known(ctx, s.DeviceID)
	if err != nil || d == nil || nodemount.NodeNumber(d.Path()) != number {
		return false, err
	}
	err = r.held.hold(s.VolumeID, d.Name, d.Path())
	if errors.Is(err, loopdev.ErrNotBound) {
		return false, nil
	}
	return err == nil, err
}

// refresh shows the device of an attachment, if there is one, its new size.
func (r *readers) refresh(ctx context.Context, attachment string) error {
	d, err := r.known(ctx, attachment)
	if d == nil || err != nil {
		return err
	}
	return d.Refresh()
}

// drop frees the device of an attachment, if there is one, unless it is
// published. The kernel counts no mounts of a device node, so they are looked
// for.
func (r *readers) drop(ctx context.Context, attachment string) error {
	d, err := r.known(ctx, attachment)
	if d == nil || err != nil {
		return err
	}
	published, err := isBound(d)
	if published || err != nil {
		return err
	}
	if err := r.held.release(d.Name); err != nil {
		return err
	}
	// If something still has it open it is fenced, and goes with its last user.
	if _, err := r.pool.Detach(ctx, d); err != nil {
		return fmt.Errorf("free read-only device: %w", err)
	}
	r.set(attachment, nil)
	return step.Done(ctx, "loop.reader.detached")
}

// isBound says whether the node of d is mounted anywhere.
func isBound(d *loopdev.Device) (bool, error) {
	all, err := mount.ListUnder("/")
	if err != nil {
		return false, err
	}
	number := nodemount.NodeNumber(d.Path())
	for _, e := range all {
		// The name comes first: asking a dead mount for its root may hang.
		if indexOf(e.Root) != d.Index {
			continue
		}
		if info, err := mount.Stat(e.MountPoint); err == nil && info.IsRoot && info.Rdev == number {
			return true, nil
		}
	}
	return false, nil
}

func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, d := range r.byAttachment {
		errs = append(errs, d.Release())
	}
	return errors.Join(append(errs, r.pool.Close())...)
}
