//go:build linux

package loopdev

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Status is what the kernel says of a bound loop device.
type Status struct {
	// Index is N of /dev/loopN.
	Index int
	// Name is the name that the device was given; other programs keep the path
	// of the backing file there.
	Name string
	// BackingDev and BackingInode tell the backing file, as stat(2) does.
	BackingDev, BackingInode uint64
	// ReadOnly, Autoclear and DirectIO are as in Config. Autoclear is also true
	// for a device that was detached and is still in use.
	ReadOnly, Autoclear, DirectIO bool
	// SizeLimit cuts the device to that many bytes; 0 means no limit.
	SizeLimit uint64
}

func statusFrom(info *unix.LoopInfo64) Status {
	return Status{
		Index:        int(info.Number),
		Name:         nameOf(info),
		BackingDev:   info.Device,
		BackingInode: info.Inode,
		ReadOnly:     info.Flags&unix.LO_FLAGS_READ_ONLY != 0,
		Autoclear:    info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0,
		DirectIO:     info.Flags&unix.LO_FLAGS_DIRECT_IO != 0,
		SizeLimit:    info.Sizelimit,
	}
}

// StatusOf asks for the state of one device. ErrNotBound is returned if nothing
// is bound to it.
func StatusOf(index int, o Options) (Status, error) { return newNodes(o).status(index) }

// errSilent says that a device is bound, to a file that the kernel cannot ask.
var errSilent = errors.New("backing file does not answer")

func (n nodes) status(index int) (Status, error) {
	if !isShown(index) {
		// Opening a device that does not exist would make it.
		return Status{}, fmt.Errorf("get status of loop%d: %w", index, ErrNotBound)
	}
	fd, err := n.peek(index)
	if err != nil {
		return Status{}, fmt.Errorf("get status of loop%d: %w", index, err)
	}
	defer func() { _ = closeFD(fd) }()
	info, err := unix.IoctlLoopGetStatus64(fd)
	if errors.Is(err, unix.ENXIO) {
		return Status{}, fmt.Errorf("get status of loop%d: %w", index, ErrNotBound)
	}
	if err != nil {
		return Status{}, fmt.Errorf("get status of loop%d: %w: %w", index, errSilent, err)
	}
	return statusFrom(info), nil
}

// Scan returns every bound loop device of this machine, ours and others', by
// index. It opens each for a moment and takes time in proportion to their
// number, so it is for the start of a process. A device that does not tell its
// state, as one whose backing file is on a dead FUSE server, has only an index.
func Scan(ctx context.Context) ([]Status, error) { return newNodes(Options{}).scan(ctx) }

// Scan is the function Scan with the pool's device nodes.
func (p *Pool) Scan(ctx context.Context) ([]Status, error) { return p.nodes.scan(ctx) }

func (n nodes) scan(ctx context.Context) ([]Status, error) {
	indexes := listIndexes(0)
	slices.Sort(indexes)
	var found []Status
	for _, index := range indexes {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("scan loop devices: %w", err)
		}
		switch status, err := n.status(index); {
		case err == nil:
			found = append(found, status)
		case errors.Is(err, ErrNotBound):
		case errors.Is(err, errSilent):
			found = append(found, Status{Index: index})
		default:
			return nil, fmt.Errorf("scan loop devices: %w", err)
		}
	}
	return found, nil
}

// Find returns the device that carries the name. The device with index hint is
// asked first (-1 for no hint), then all are scanned once. ErrNotBound is
// returned if none carries it. A device node is made if o says where.
func Find(ctx context.Context, name string, hint int, o Options) (*Device, error) {
	if name == "" {
		return nil, errors.New("find loop device: no name")
	}
	n := newNodes(o)
	if hint >= 0 {
		if d, err := adopt(n, hint, name); err == nil {
			return d, nil
		}
	}
	statuses, err := n.scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("find loop device %s: %w", name, err)
	}
	statuses = slices.DeleteFunc(statuses, func(s Status) bool { return s.Name != name })
	switch len(statuses) {
	case 0:
		return nil, fmt.Errorf("find loop device %s: %w", name, ErrNotBound)
	case 1:
		return adopt(n, statuses[0].Index, name)
	}
	return nil, fmt.Errorf("find loop device %s: loop%d and loop%d both carry the name", name, statuses[0].Index, statuses[1].Index)
}
