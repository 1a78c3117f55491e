//go:build linux

package filesystem

import (
	"container/list"
	"context"
	"runtime"
	"sync"
)

// Options are the settings of a Maker.
type Options struct {
	// TempDir is where mkfs works, on a file that has no name and so cannot be
	// left behind. Empty means memory, of which xfs needs 64 MiB for a moment;
	// so does a directory whose file system has no such files.
	TempDir string
	// MaxBytes bounds the memory for templates that are kept; 0 means 64 MiB.
	// The least recently used are dropped first. ext4 takes 0.1 to 0.4 MiB a
	// shape up to 10 GiB and 16 MiB at 1 TiB; xfs and btrfs less than 0.4 MiB
	// at any size.
	MaxBytes int64
}

// shape is what decides how a file system looks but for its identity.
type shape struct {
	fs   Type
	size int64
	// sector is the device's, as a file system must not use a smaller one.
	sector int64
}

// Maker makes file systems. The first of a shape takes one run of mkfs, all
// others are written from memory. It is safe for concurrent use, holds no
// descriptor, and needs no closing.
type Maker struct {
	tempDir  string
	maxBytes int64
	// running bounds how many mkfs run at once.
	running chan struct{}

	mu sync.Mutex
	// recent has the kept templates, the last used in front; kept finds them.
	recent *list.List
	kept   map[shape]*list.Element
	bytes  int64
	// making has a channel for each shape whose mkfs is under way. It is closed
	// at the end, well or not.
	making map[shape]chan struct{}
}

// keptTemplate is an element of Maker.recent.
type keptTemplate struct {
	shape    shape
	template *template
}

// NewMaker makes a Maker. It does nothing to the machine.
func NewMaker(o Options) *Maker {
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	return &Maker{
		tempDir:  o.TempDir,
		maxBytes: o.MaxBytes,
		running:  make(chan struct{}, runtime.GOMAXPROCS(0)),
		recent:   list.New(),
		kept:     map[shape]*list.Element{},
		making:   map[shape]chan struct{}{},
	}
}

// template returns the template of a shape. Callers that want the same one at
// once wait for one run of mkfs; each of them waits no longer than its context.
func (m *Maker) template(ctx context.Context, s shape) (*template, error) {
	for {
		m.mu.Lock()
		if element, ok := m.kept[s]; ok {
			m.recent.MoveToFront(element)
			m.mu.Unlock()
			return element.Value.(keptTemplate).template, nil
		}
		wait, ok := m.making[s]
		if !ok {
			break // with the lock held
		}
		m.mu.Unlock()
		// If that run fails, or its caller gives up, the next one tries itself.
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	m.making[s] = done
	m.mu.Unlock()

	t, err := m.make(ctx, s)

	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.making, s)
	close(done)
	if err != nil {
		return nil, err
	}
	m.keep(s, t)
	return t, nil
}

// keep stores a template and drops old ones. One that is too large for the whole
// store is not kept at all. The lock is held.
func (m *Maker) keep(s shape, t *template) {
	if t.bytes > m.maxBytes {
		return
	}
	m.kept[s] = m.recent.PushFront(keptTemplate{s, t})
	m.bytes += t.bytes
	for m.bytes > m.maxBytes {
		last := m.recent.Remove(m.recent.Back()).(keptTemplate)
		delete(m.kept, last.shape)
		m.bytes -= last.template.bytes
	}
}
