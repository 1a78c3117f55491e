//go:build linux

package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/step"
)

// The notes in the directory of a holder.
const (
	// shapeName is how slow the volume is, if it is.
	shapeName = "shape.json"
	// bindingName is the device that was last bound, or about to be.
	bindingName = "device.json"
)

// binding tells the device of a breakable volume from all others: by its name,
// with device and inode of its backing file. The note is needed where the holder
// is dead and its mount gone, as after the restart of a container.
type binding struct {
	Name  string `json:"name"`
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
}

func (n binding) file() imagefile.Identity { return imagefile.Identity{Dev: n.Dev, Inode: n.Inode} }

// is says whether a device is the one that the note is about.
func (n binding) is(st loopdev.Status) bool {
	return n.Name != "" && st.Name == n.Name && backing(st) == n.file()
}

// readShape returns the shape that is noted in dir, the zero value if none is.
func readShape(dir string) (s backends.Shaping, err error) {
	err = readNote(dir, shapeName, &s)
	return s, err
}

// readBinding returns the binding that is noted in dir, the zero value if none
// is, or one that a lost machine left in pieces: no device is older than that.
func readBinding(dir string) (n binding, err error) {
	err = readNote(dir, bindingName, &n)
	if errors.Is(err, errDamaged) {
		return binding{}, nil
	}
	return n, err
}

var errDamaged = errors.New("it is damaged")

// readNote reads a note into value. One that is not there changes nothing.
func readNote(dir, name string, value any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = json.Unmarshal(data, value); err != nil {
			err = fmt.Errorf("%w, remove it or set it again: %w", errDamaged, err)
		}
	}
	if err != nil {
		return fmt.Errorf("read note %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// sweepNotes removes what a killed writeNote left in dir.
func sweepNotes(dir string) error {
	return errors.Join(remove(filepath.Join(dir, shapeName+".new")), remove(filepath.Join(dir, bindingName+".new")))
}

// writeNote writes a note as a whole or not at all.
func writeNote(ctx context.Context, dir, name string, value any, sync bool) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	err = writeFile(path+".new", data, sync)
	if err == nil {
		err = step.Done(ctx, "loop.holder.noting")
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write note: %w", errors.Join(err, remove(path+".new")))
	}
	if !sync {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write note %s: %w", path, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeFile(path string, data []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
