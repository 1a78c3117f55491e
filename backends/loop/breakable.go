//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// breakableName is the directory, in that of a volume, of the holder of a
// breakable one.
const breakableName = "breakable"

// breakableDir is where the holder of v has its files. An image below NestedDir
// fills the file system that it lies on, so they are beside that.
func breakableDir(v backends.Volume) string {
	dir := v.Dir
	if filepath.Base(dir) == NestedDir {
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, breakableName)
}

// serving is what is known of the holder under a breakable volume's device.
type serving struct {
	dir string
	// image and file are the identities of the image and of the file that the
	// holder serves in its place, which is the backing file of the device.
	image, file imagefile.Identity
	// process is nil for a holder that an earlier process started.
	process *fusefile.Holder
}

// planBreakable refuses what a breakable volume cannot be, on this machine or at
// all.
func planBreakable(l backends.Layout) error {
	if !l.Breakable {
		return nil
	}
	if l.DirectIO {
		return fmt.Errorf("breakable=true and directIO=true: the process under a breakable volume uses the page cache: %w", backends.ErrInvalid)
	}
	if err := kernel.Probe(context.Background(), kernel.FUSE); err != nil {
		return fmt.Errorf("breakable=true: %w: %w", err, backends.ErrPrecondition)
	}
	return nil
}

// attachServed binds a device to the file that a holder serves in the place of
// image.
func (b *Backend) attachServed(ctx context.Context, v backends.Volume, a backends.Attachment, bound *bound, image *os.File) (_ *loopdev.Device, err error) {
	if err := b.ensureHolder(ctx, v, bound, image); err != nil {
		return nil, err
	}
	defer func() {
		if bound.device == nil {
			err = errors.Join(err, undo.Run(ctx, func(ctx context.Context) error { return b.unserve(ctx, v, bound) }))
		}
	}()
	file, err := fusefile.Open(bound.serving.dir, a.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if bound.serving.file, err = imagefile.IdentityOf(file); err != nil {
		return nil, err
	}
	// It comes first, as it alone tells that the device is ours.
	note := binding{Name: a.ID, Dev: bound.serving.file.Dev, Inode: bound.serving.file.Inode}
	if err := writeNote(ctx, bound.serving.dir, bindingName, note, false); err != nil {
		return nil, err
	}
	if err := step.Done(ctx, "loop.holder.noted"); err != nil {
		return nil, err
	}
	return b.bind(ctx, v, a, bound, file)
}

// ensureHolder makes sure that a holder serves image.
func (b *Backend) ensureHolder(ctx context.Context, v backends.Volume, bound *bound, image *os.File) error {
	id, err := imagefile.IdentityOf(image)
	if err != nil {
		return err
	}
	dir := breakableDir(v)
	shape, err := readShape(dir)
	if err != nil {
		return err
	}
	alive, err := b.isServed(ctx, v, id, shape)
	if err != nil {
		return err
	}
	if alive {
		if bound.serving == nil {
			bound.serving = &serving{dir: dir}
		}
		bound.serving.image = id
		return nil
	}
	// The holder writes even where the attachment does not.
	writable, err := imagefile.Open(v.Dir, false)
	if err != nil {
		return err
	}
	defer writable.Close()
	process, err := fusefile.Start(ctx, fusefile.Config{
		Dir: dir, VolumeID: v.ID, Image: writable, Tied: b.o.Autoclear,
		Behaviour: fusefile.Behaviour{Shape: shape},
	})
	if err != nil {
		return err
	}
	b.keepProcess(process)
	bound.serving = &serving{dir: dir, image: id, process: process}
	return step.Done(ctx, "loop.holder.started")
}

// isServed says whether a holder serves the image, as slow as it is to be. One
// that serves something else, or does not answer, is stopped.
func (b *Backend) isServed(ctx context.Context, v backends.Volume, image imagefile.Identity, shape backends.Shaping) (bool, error) {
	dir := breakableDir(v)
	st, err := fusefile.Ask(ctx, dir)
	switch {
	case errors.Is(err, fusefile.ErrNotServing):
		return false, nil
	case err == nil && st.VolumeID == v.ID && st.Image == image && !st.Stopping:
		// Faults end with their process, and come again after Attach.
		if want := (fusefile.Behaviour{Shape: shape}); !reflect.DeepEqual(st.Behaviour, want) {
			return true, fusefile.Behave(ctx, dir, want)
		}
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	// It ends when nothing uses its file any more.
	return false, fusefile.Stop(ctx, dir, v.ID, false)
}
