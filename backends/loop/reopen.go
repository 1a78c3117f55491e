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
	images, err := imagesBelow(b.o.Dir)
	if err != nil {
		return fmt.Errorf("reopen loop store %s: %w", b.o.Dir, err)
	}
	holders, err := holdersBelow(b.o.Dir)
	if err != nil {
		return fmt.Errorf("reopen loop store %s: %w", b.o.Dir, err)
	}
	r := reopening{b: b, devices: map[imagefile.Identity][]loopdev.Status{}, names: map[string][]loopdev.Status{}}
	for _, st := range all {
		r.devices[backing(st)] = append(r.devices[backing(st)], st)
		r.names[st.Name] = append(r.names[st.Name], st)
	}
	for _, v := range volumes {
		if err := ctx.Err(); err != nil {
			return err
		}
		delete(images, imagefile.Path(v.Dir))
		delete(holders, breakableDir(v.Volume))
		if err := r.volume(ctx, v); err != nil {
			report(v.ID, fmt.Errorf("reopen volume %s: %w", v.ID, err))
		}
	}
	for _, s := range snapshots {
		delete(images, imagefile.Path(s.Dir))
		if err := errors.Join(r.free(ctx, &bound{}, imagefile.Path(s.Dir), ""), imagefile.RemoveUnfinished(s.Dir)); err != nil {
			report(s.ID, fmt.Errorf("reopen snapshot %s: %w", s.ID, err))
		}
	}
	for dir := range holders {
		if err := r.unexplained(ctx, dir); err != nil {
			id := filepath.Base(filepath.Dir(dir))
			report(id, fmt.Errorf("free unexplained holder in %s: %w", dir, err))
		}
	}
	for image := range images {
		if err := r.free(ctx, &bound{}, image, ""); err != nil {
			id := filepath.Base(filepath.Dir(image))
			report(id, fmt.Errorf("free device over unexplained image %s: %w", image, err))
		}
	}
	return nil
}

// DamagedDir is the directory of the store where volumes with a damaged record
// are set aside. Their devices and mounts stay until somebody repairs the record.
const DamagedDir = "damaged"

// imagesBelow finds the images of the store, whether a record explains them or
// not.
func imagesBelow(store string) (map[string]bool, error) {
	found := map[string]bool{}
	// Volumes of package tmpfs have their image one level further down.
	for _, pattern := range []string{imagefile.Path("*/*"), imagefile.Path("*/*/" + NestedDir)} {
		paths, err := filepath.Glob(filepath.Join(quote(store), pattern))
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if !strings.HasPrefix(p, filepath.Join(store, DamagedDir)+"/") {
				found[p] = true
			}
		}
	}
	return found, nil
}

// quote keeps Glob from reading meaning into a path.
func quote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
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
		return st.Name, nil
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
