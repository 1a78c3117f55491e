//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// Reopen adopts the devices that volumes explain, makes those that are missing,
// frees devices over images of this store that nothing explains, and removes
// unfinished images.
func (b *Backend) Reopen(ctx context.Context, volumes []backends.Held, snapshots []backends.Snapshot, report func(volumeID string, err error)) error {
	all, err := b.pool.Scan(ctx)
	if err != nil {
		return fmt.Errorf("reopen loop store %s: %w", b.o.Dir, err)
	}
	b.mu.Lock()
	b.names = indexesByName(all)
	b.mu.Unlock()
	r := reopening{b: b, devices: map[imagefile.Identity][]loopdev.Status{}, names: map[string][]loopdev.Status{}}
	for _, st := range all {
		r.devices[backing(st)] = append(r.devices[backing(st)], st)
		r.names[st.Name] = append(r.names[st.Name], st)
	}
	explained := map[string]bool{}
	for _, v := range volumes {
		if err := ctx.Err(); err != nil {
			return err
		}
		explained[storeDir(v.Dir)] = true
		if err := r.volume(ctx, v); err != nil {
			report(v.ID, fmt.Errorf("reopen volume %s: %w", v.ID, err))
		}
	}
	for _, s := range snapshots {
		explained[storeDir(s.Dir)] = true
		if err := errors.Join(r.free(ctx, &bound{}, imagefile.Path(s.Dir), ""), imagefile.RemoveUnfinished(s.Dir)); err != nil {
			report(s.ID, fmt.Errorf("reopen snapshot %s: %w", s.ID, err))
		}
	}
	left, err := unexplainedBelow(b.o.Dir, explained)
	if err != nil {
		return fmt.Errorf("reopen loop store %s: %w", b.o.Dir, err)
	}
	for _, dir := range left {
		if err := r.clear(ctx, dir); err != nil {
			report(filepath.Base(dir), fmt.Errorf("free what nothing explains in %s: %w", dir, err))
		}
	}
	return nil
}

// clear frees the holder and the devices of a directory that nothing explains.
func (r *reopening) clear(ctx context.Context, dir string) error {
	var errs []error
	if _, err := os.Lstat(filepath.Join(dir, breakableName)); err == nil {
		errs = append(errs, r.unexplained(ctx, filepath.Join(dir, breakableName)))
	}
	// Volumes of package tmpfs have their image one level further down.
	for _, dir := range []string{dir, filepath.Join(dir, NestedDir)} {
		errs = append(errs, r.free(ctx, &bound{}, imagefile.Path(dir), ""))
	}
	return errors.Join(errs...)
}

// DamagedDir is the directory of the store where volumes with a damaged record
// are set aside. Their devices and mounts stay until somebody repairs the record.
const DamagedDir = "damaged"

// storeDir is the directory in the store of a volume or snapshot whose bytes are
// in dir.
func storeDir(dir string) string {
	if filepath.Base(dir) == NestedDir {
		return filepath.Dir(dir)
	}
	return dir
}

// unexplainedBelow finds the directories of volumes and snapshots that no record
// explains. Of those that one explains it sees the name only: there may be ten
// thousand.
func unexplainedBelow(store string, explained map[string]bool) ([]string, error) {
	kinds, err := os.ReadDir(store)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, kind := range kinds {
		if !kind.IsDir() || kind.Name() == DamagedDir {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(store, kind.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if dir := filepath.Join(store, kind.Name(), e.Name()); e.IsDir() && !explained[dir] {
				left = append(left, dir)
			}
		}
	}
	return left, nil
}

// reopening is what the kernel has, seen once.
type reopening struct {
	b       *Backend
	devices map[imagefile.Identity][]loopdev.Status
	names   map[string][]loopdev.Status
}

func (r *reopening) volume(ctx context.Context, v backends.Held) error {
	if err := imagefile.RemoveUnfinished(v.Dir); err != nil {
		return err
	}
	d := r.b.of(v.ID)
	keep := ""
	adopt := r.adopt
	if v.Breakable {
		adopt = r.adoptServed
	}
	if v.Attachment != nil || v.Breakable {
		var err error
		if keep, err = adopt(ctx, d, v); err != nil {
			return err
		}
	}
	if err := r.free(ctx, d, imagefile.Path(v.Dir), keep); err != nil {
		return err
	}
	if v.Attachment == nil {
		return checkLength(v.Volume)
	}
	if keep == "" {
		if err := r.freeReplaced(ctx, d, v); err != nil {
			return err
		}
	}
	_, err := r.b.attach(ctx, v.Volume, *v.Attachment, 0)
	if errors.Is(err, backends.ErrDataLoss) && keep == "" {
		d.wanted = v.Attachment
	}
	return err
}

// adopt takes over the device that carries the volume's attachment and has its
// image as backing file, and returns its name.
func (r *reopening) adopt(_ context.Context, d *bound, v backends.Held) (string, error) {
	id, err := imagefile.IdentityAt(imagefile.Path(v.Dir))
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.Join(fmt.Errorf("its bytes are lost: %w: %w", err, backends.ErrDataLoss), r.adoptDeleted(d, v))
	}
	if err != nil {
		return "", err
	}
	for _, st := range r.devices[id] {
		if st.Name != v.Attachment.ID || st.ReadOnly != v.Attachment.ReadOnly {
			continue
		}
		device, err := r.b.pool.Adopt(st.Index, st.Name)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue // it went since the scan
		}
		if err != nil {
			return "", fmt.Errorf("adopt device %d: %w", st.Index, err)
		}
		d.device, d.readOnly = device, st.ReadOnly
		if st.SizeLimit != 0 {
			// Faults end with their process.
			err = device.Unfence()
		}
		return st.Name, err
	}
	return "", nil
}

// adoptDeleted adopts the device over an image that was deleted. Who uses it goes
// on, and it goes with the attachment.
func (r *reopening) adoptDeleted(d *bound, v backends.Held) error {
	for _, st := range r.names[v.Attachment.ID] {
		path, err := backingPath(st.Index)
		if errors.Is(err, os.ErrNotExist) {
			continue // it went since the scan
		}
		if err != nil {
			return err
		}
		if path != imagefile.Path(v.Dir)+" (deleted)" {
			continue
		}
		device, err := r.b.pool.Adopt(st.Index, st.Name)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("adopt device %d: %w", st.Index, err)
		}
		d.device, d.readOnly = device, st.ReadOnly
	}
	return nil
}

// free takes away the devices over an image but the one named keep.
func (r *reopening) free(ctx context.Context, d *bound, image, keep string) error {
	id, err := imagefile.IdentityAt(image)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, st := range r.devices[id] {
		if keep != "" && d.device != nil && st.Index == d.device.Index {
			continue
		}
		errs = append(errs, r.freeOne(ctx, d, st))
	}
	return errors.Join(errs...)
}

func (r *reopening) freeOne(ctx context.Context, d *bound, st loopdev.Status) error {
	device, err := r.b.pool.Adopt(st.Index, st.Name)
	if errors.Is(err, loopdev.ErrNotBound) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.b.detach(ctx, d, device)
}

// freeReplaced takes away a device that carries the volume's attachment over a
// file that was the volume's image and is deleted. Others with that name are
// not ours to touch, but a node could take them for the volume, which is then
// not attached.
func (r *reopening) freeReplaced(ctx context.Context, d *bound, v backends.Held) error {
	for _, st := range r.names[v.Attachment.ID] {
		if d.isLeaving(st.Index) {
			continue // attach says so
		}
		path, err := backingPath(st.Index)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // it went since the scan
		case err != nil:
			return err
		case path != imagefile.Path(v.Dir)+" (deleted)":
			return fmt.Errorf("loop device %d carries the name %s over another file, %s; detach it: %w", st.Index, st.Name, path, backends.ErrPrecondition)
		}
		if err := r.freeOne(ctx, d, st); err != nil {
			return err
		}
	}
	return nil
}

// isLeaving says whether a device was detached and is in use still.
func (d *bound) isLeaving(index int) bool {
	return slices.ContainsFunc(d.leaving, func(l *loopdev.Device) bool { return l.Index == index })
}

// backingPath is the path of a device's backing file as the kernel knows it.
func backingPath(index int) (string, error) {
	path, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", index))
	return strings.TrimSuffix(string(path), "\n"), err
}
