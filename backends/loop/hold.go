//go:build linux

package loop

import (
	"errors"
	"os"
	"sync"

	"github.com/csiemu/csiemu/internal/loopdev"
)

// holds are the devices that a node keeps open for its raw block volumes. A
// bind mount of a device node does not hold the device: without these the kernel
// would free a device that is detached, and the next volume to get its index
// would be seen at the targets of this one. They are opened for reading and
// claim nothing, so they are in nobody's way.
type holds struct {
	mu sync.Mutex
	// byName has one for each name that a device carries.
	byName map[string]held
}

// held is an open device of a volume.
type held struct {
	volumeID string
	file     *os.File
}

// hold keeps the device at path open, unless it is. loopdev.ErrNotBound is
// returned if it does not carry the name.
func (h *holds) hold(volumeID, name, path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, ok := h.byName[name]
	if ok && loopdev.IsNodeOf(old.file, path) {
		return nil
	}
	f, err := loopdev.OpenNamed(path, name)
	if err != nil {
		return err
	}
	if h.byName == nil {
		h.byName = map[string]held{}
	}
	h.byName[name] = held{volumeID, f}
	if ok {
		return old.file.Close()
	}
	return nil
}

// file is the open device that carries a name, if it is held.
func (h *holds) file(name string) (*os.File, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.byName[name]
	return d.file, ok
}

// release lets go of the device that carries a name.
func (h *holds) release(name string) error {
	return h.releaseIf(func(have string, _ held) bool { return have == name })
}

// releaseVolume lets go of all devices of a volume.
func (h *holds) releaseVolume(volumeID string) error {
	return h.releaseIf(func(_ string, d held) bool { return d.volumeID == volumeID })
}

// close lets go of all devices.
func (h *holds) close() error {
	return h.releaseIf(func(string, held) bool { return true })
}

func (h *holds) releaseIf(chosen func(name string, d held) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for name, d := range h.byName {
		if chosen(name, d) {
			delete(h.byName, name)
			errs = append(errs, d.file.Close())
		}
	}
	return errors.Join(errs...)
}
