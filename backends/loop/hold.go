//go:build linux

package loop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

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
	if ok && isSameDevice(old.file, path) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("hold device %s: %w: %w", name, err, loopdev.ErrNotBound)
	case err != nil:
		return fmt.Errorf("hold device %s: %w", name, err)
	}
	// Asked over the descriptor: from here on the device stays what it is.
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	switch {
	case errors.Is(err, unix.ENXIO), err == nil && nameIn(info) != name:
		return errors.Join(fmt.Errorf("hold device %s, which %s does not carry: %w", name, path, loopdev.ErrNotBound), f.Close())
	case err != nil:
		return errors.Join(fmt.Errorf("hold device %s: ask %s for its name: %w", name, path, err), f.Close())
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

func nameIn(info *unix.LoopInfo64) string {
	name, _, _ := bytes.Cut(info.File_name[:], []byte{0})
	return string(name)
}

// isSameDevice says whether f is open on the device whose node is at path.
func isSameDevice(f *os.File, path string) bool {
	var have, want unix.Stat_t
	return unix.Fstat(int(f.Fd()), &have) == nil && unix.Stat(path, &want) == nil && have.Rdev == want.Rdev
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
