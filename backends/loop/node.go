//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/nodemount"
)

// node is the half of a node.
type node struct {
	sync    bool
	devices loopdev.Options
	maker   *filesystem.Maker
	freezer *freeze.Freezer
	readers *readers
	intents intents
	held    *holds
}

// Node makes the half of a node. Nodes share the backend's templates and the
// watchdog of its freezes, so they end before it.
func (b *Backend) Node(c backends.NodeConfig) (backends.Node, error) {
	devices := loopdev.Options{NodeDir: c.Dir}
	h, notes := &holds{}, intents{c.Dir}
	if err := notes.sweep(); err != nil {
		return nil, fmt.Errorf("make loop node in %s: %w", c.Dir, err)
	}
	r, err := newReaders(devices, b.o.Autoclear, h)
	if err != nil {
		return nil, fmt.Errorf("make loop node in %s: %w", c.Dir, err)
	}
	return &node{sync: c.Sync, devices: devices, maker: b.maker, freezer: b.freezer, readers: r, intents: notes, held: h}, nil
}

// Close lets go of the devices of raw block volumes, and of the read-only ones
// of publications. They stay, unless the backend was made with
// Options.Autoclear.
func (n *node) Close() error { return errors.Join(n.held.close(), n.readers.close()) }

// find returns the device that carries the attachment of a publish context.
func (n *node) find(ctx context.Context, publishContext map[string]string) (*loopdev.Device, loopdev.Status, error) {
	id := publishContext[AttachmentKey]
	if id == "" {
		return nil, loopdev.Status{}, fmt.Errorf("it is not attached: its publish context has no %s: %w", AttachmentKey, backends.ErrNotFound)
	}
	d, err := loopdev.Find(ctx, id, hint(publishContext[DeviceKey]), n.devices)
	if errors.Is(err, loopdev.ErrNotBound) {
		return nil, loopdev.Status{}, notHere(id, publishContext[BootKey])
	}
	if err != nil {
		return nil, loopdev.Status{}, err
	}
	st, err := statusOf(d)
	if errors.Is(err, loopdev.ErrNotBound) { // detached since it was found
		return nil, loopdev.Status{}, notHere(id, publishContext[BootKey])
	}
	if err != nil {
		return nil, loopdev.Status{}, err
	}
	if st.SizeLimit != 0 {
		return nil, loopdev.Status{}, fmt.Errorf("device %s of attachment %s is fenced: it was detached while in use, or a fault holds it: %w", d.Path(), id, backends.ErrPrecondition)
	}
	return d, st, nil
}

// notHere says why no device carries an attachment.
func notHere(id, boot string) error {
	here, err := kernel.BootID()
	switch {
	case err != nil:
		return err
	case boot != here:
		return fmt.Errorf("no loop device carries attachment %s, which was made on the kernel with boot id %q; this one has %q: node and array run on different machines, or the machine was restarted and the array was not started since: %w", id, boot, here, backends.ErrNotFound)
	}
	return fmt.Errorf("no loop device carries attachment %s: it was detached: %w", id, backends.ErrNotFound)
}

// hint is the index in a device number; -1 if there is none. A wrong one costs
// a scan.
func hint(number string) int {
	minor, ok := strings.CutPrefix(number, "7:")
	index, err := strconv.Atoi(minor)
	if !ok || err != nil {
		return -1
	}
	return index
}

func deviceNumber(d *loopdev.Device) string { return fmt.Sprintf("%d:%d", d.Major(), d.Minor()) }

// indexOf is N of a device node called loopN, wherever it lies; -1 for others.
func indexOf(path string) int {
	index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "loop"))
	if err != nil {
		return -1
	}
	return index
}

// status is the state of the device that s was staged from, or
// loopdev.ErrNotBound.
func (n *node) status(s backends.Staged) (loopdev.Status, error) {
	index := indexOf(s.Device)
	if index < 0 {
		return loopdev.Status{}, fmt.Errorf("device %q is none: %w", s.Device, loopdev.ErrNotBound)
	}
	st, err := n.ask(index, s.DeviceID)
	if err == nil && st.Name != s.DeviceID {
		return st, fmt.Errorf("device %s carries %q, not %s: %w", s.Device, st.Name, s.DeviceID, loopdev.ErrNotBound)
	}
	return st, err
}

// ask asks over the descriptor by which the device is held, if it is.
func (n *node) ask(index int, name string) (loopdev.Status, error) {
	if f, ok := n.held.file(name); ok {
		if st, err := loopdev.StatusOfOpen(f); err == nil && st.Index == index {
			return st, nil
		}
	}
	return loopdev.StatusOf(index, n.devices)
}

// device is the device that s was staged from.
func (n *node) device(ctx context.Context, s backends.Staged) (*loopdev.Device, error) {
	d, err := loopdev.Find(ctx, s.DeviceID, indexOf(s.Device), n.devices)
	if errors.Is(err, loopdev.ErrNotBound) {
		return nil, fmt.Errorf("device %s of attachment %s is gone: %w: %w", s.Device, s.DeviceID, err, backends.ErrPrecondition)
	}
	return d, err
}

// IsStaged asks for the device, and for what is mounted at the staging path. It
// takes constant time. The device of a raw block volume that an earlier process
// staged is held from here on.
func (n *node) IsStaged(_ context.Context, s backends.Staged) (bool, error) {
	if !s.Block {
		return n.mountedAt(s, s.Path)
	}
	_, err := n.status(s)
	if err == nil {
		err = n.held.hold(s.VolumeID, s.DeviceID, s.Device)
	}
	if errors.Is(err, loopdev.ErrNotBound) {
		return false, nil
	}
	return err == nil, err
}

// mountedAt says whether the file system of s is mounted at path.
func (n *node) mountedAt(s backends.Staged, path string) (bool, error) {
	dev, mounted, err := nodemount.Device(path)
	if err != nil || !mounted {
		return false, err
	}
	return dev != 0 && dev == nodemount.NodeNumber(s.Device), nil
}

// dead says whether the device of s has gone for good, so that nothing is won by
// waiting for who uses its mounts.
func (n *node) dead(s backends.Staged) bool {
	st, err := n.status(s)
	return err != nil || st.SizeLimit != 0
}
