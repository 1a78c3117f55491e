//go:build linux

package loopdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/internal/kernel"
)

var (
	// ErrNotBound is returned when no device, or not this one, carries the
	// name: it was released, or another program's file lies on it now.
	ErrNotBound = errors.New("loop device is not bound")
	// ErrBusy is returned when no loop device could be had because other
	// programs took each that was tried.
	ErrBusy = errors.New("loop devices are busy")
)

// maxName is what the kernel keeps of a name: LO_NAME_SIZE less its NUL.
const maxName = 63

// Options say where device nodes are.
type Options struct {
	// Dev is the directory of device nodes; empty means /dev.
	Dev string
	// NodeDir is a directory, which exists, where nodes are made that Dev does
	// not show, as in a container whose /dev is its own. Nodes made there stay
	// and are used again. Empty means that a missing node is an error.
	NodeDir string
}

// Pool attaches loop devices, using again those that it released. It is safe
// for concurrent use.
type Pool struct {
	nodes   nodes
	control *os.File
	indexes indexes
}

// NewPool opens the loop control device. A *kernel.NotSupportedError is
// returned where there is none.
func NewPool(o Options) (*Pool, error) {
	n := newNodes(o)
	control, err := n.openControl()
	if err != nil {
		return nil, err
	}
	return &Pool{nodes: n, control: control, indexes: newIndexes(n.partShift)}, nil
}

// Close closes the control device. Attached devices stay, those with Autoclear
// for as long as they are held, and can still be detached; nothing can be
// attached any more.
func (p *Pool) Close() error {
	if err := p.control.Close(); err != nil {
		return fmt.Errorf("close loop control: %w", err)
	}
	return nil
}

// Config is how a device is attached.
type Config struct {
	// Name is the identity of the device, 1 to 63 bytes without NUL. It must be
	// unique on this machine.
	Name string
	// ReadOnly makes a device that refuses writes.
	ReadOnly bool
	// DirectIO bypasses the page cache of the backing file. The device has
	// sectors as large as the file system of the backing file asks for.
	DirectIO bool
	// Autoclear makes a device that goes with its last user, also when this
	// process is killed.
	Autoclear bool
}

func (c Config) check() error {
	switch {
	case c.Name == "":
		return errors.New("attach loop device: no name")
	case len(c.Name) > maxName:
		return fmt.Errorf("attach loop device %q: name is longer than %d bytes", c.Name, maxName)
	case strings.IndexByte(c.Name, 0) >= 0:
		return fmt.Errorf("attach loop device %q: name has a NUL byte", c.Name)
	}
	return nil
}

// Device is a loop device and the name that it must carry. Its methods are safe
// for concurrent use; each opens the device for a moment and returns ErrNotBound
// once the device is released.
type Device struct {
	// Index is N of /dev/loopN.
	Index int
	// Name is the identity that was given to Attach.
	Name string

	nodes nodes
	path  string
	// sequence is the kernel's number of this binding, 0 where it has none. It
	// tells the device when its backing file cannot be asked.
	sequence uint64

	mu sync.Mutex // held by Detach and Release
	// hold is a descriptor that keeps an autoclear device bound, if holding.
	hold    int
	holding bool
	// lingering is true after a Detach that found the device in use.
	lingering bool
}

// Path is the device node.
func (d *Device) Path() string { return d.path }

// Major is the major number of the device.
func (d *Device) Major() uint32 { return loopMajor }

// Minor is the minor number of the device.
func (d *Device) Minor() uint32 { return d.nodes.minor(d.Index) }

// Adopt takes over a device that an earlier process attached. ErrNotBound is
// returned if the device with this index does not carry the name. An autoclear
// device is not held by its adoption.
func (p *Pool) Adopt(index int, name string) (*Device, error) {
	return adopt(p.nodes, index, name)
}

func adopt(n nodes, index int, name string) (*Device, error) {
	if !isShown(index) {
		return nil, fmt.Errorf("adopt loop%d as %s: %w", index, name, ErrNotBound)
	}
	path, fd, err := n.open(index, readOnly)
	if err != nil {
		return nil, fmt.Errorf("adopt loop%d as %s: %w", index, name, err)
	}
	defer func() { _ = closeFD(fd) }()
	d := &Device{Index: index, Name: name, nodes: n, path: path}
	if err := d.verify(fd); err != nil {
		return nil, fmt.Errorf("adopt loop%d: %w", index, err)
	}
	d.sequence = diskSequence(fd)
	return d, nil
}

// Attach binds backing to a free loop device. backing is a regular file or a
// block device, opened for reading and writing (for reading is enough if
// c.ReadOnly) and not kept: the caller may close it. With Autoclear the device
// is held open until Detach or Release.
//
// A *kernel.NotSupportedError is returned where direct I/O was asked for and
// the backing file has none, where the kernel is older than LOOP_CONFIGURE, and
// where a device node is missing and may not be made; ErrBusy when other
// programs took every device that was tried.
func (p *Pool) Attach(ctx context.Context, backing *os.File, c Config) (*Device, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	d, err := p.attach(ctx, backing, c)
	if err != nil {
		return nil, fmt.Errorf("attach %s as loop device %s: %w", backing.Name(), c.Name, err)
	}
	return d, nil
}

// maxTries bounds how many indexes one Attach steps over. Each try is another
// index, so it is only reached where that many devices belong to others.
const maxTries = 1 << 14

// maxAside bounds how many devices one Attach makes, or finds without a node,
// and cannot use. One or two happen when another program takes a new device, or
// removes one, whose node goes first; more are a machine that hides devices, and
// making them without end would fill it.
const maxAside = 4

func (p *Pool) attach(ctx context.Context, backing *os.File, c Config) (*Device, error) {
	var aside []int
	defer func() {
		for _, index := range aside {
			p.indexes.give(index)
		}
	}()
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		index, made, err := p.take()
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d, err := p.bind(index, backing, c)
		if err == nil {
			return d, nil
		}
		taken := errors.Is(err, errTaken)
		if taken && !made {
			// Another program was faster, or is just letting go. The index is
			// forgotten: it is not ours any more.
			continue
		}
		aside = append(aside, index)
		if !taken && !errors.Is(err, errNoNode) {
			return nil, p.explain(ctx, err)
		}
		if len(aside) < maxAside {
			continue
		}
		if taken {
			return nil, fmt.Errorf("%d new devices could not be used: %w", len(aside), ErrBusy)
		}
		return nil, err
	}
	return nil, fmt.Errorf("after %d tries: %w", maxTries, ErrBusy)
}

// explain replaces a refusal that comes from an old kernel by one that says so.
func (p *Pool) explain(ctx context.Context, err error) error {
	if !isInvalid(err) {
		return err
	}
	if probe := kernel.Probe(ctx, kernel.LoopConfigure); errors.Is(probe, kernel.ErrNotSupported) {
		return probe
	}
	return err
}
