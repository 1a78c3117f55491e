//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// earlier returns the device that an earlier process attached as a and that
// nothing in memory tells of, nil if there is none. It is
// backends.ErrPrecondition if its backing file is not the image: a node would
// take that device for the volume.
func (b *Backend) earlier(ctx context.Context, a backends.Attachment, image *os.File) (*loopdev.Device, error) {
	indexes, err := b.indexesOf(ctx, a.ID)
	if err != nil || len(indexes) == 0 {
		return nil, err
	}
	id, err := imagefile.IdentityOf(image)
	if err != nil {
		return nil, err
	}
	for _, index := range indexes {
		d, err := b.pool.Adopt(index, a.ID)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue // it went since the scan
		}
		if err != nil {
			return nil, err
		}
		st, err := statusOf(d)
		if errors.Is(err, loopdev.ErrNotBound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := requireBacking(d, id, image.Name()); err != nil {
			return nil, err
		}
		if st.ReadOnly != a.ReadOnly || st.SizeLimit != 0 {
			return nil, fmt.Errorf("device %s carries attachment %s, read-only %t and fenced %t: %w", d.Path(), a.ID, st.ReadOnly, st.SizeLimit != 0, backends.ErrPrecondition)
		}
		return d, nil
	}
	return nil, nil
}

// indexesOf are the devices that carried a name when this process first looked,
// at all devices once. Those that came later are this process's own.
func (b *Backend) indexesOf(ctx context.Context, name string) ([]int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		all, err := b.pool.Scan(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for devices of an earlier process: %w", err)
		}
		b.names = indexesByName(all)
	}
	return b.names[name], nil
}

func indexesByName(all []loopdev.Status) map[string][]int {
	names := map[string][]int{}
	for _, st := range all {
		names[st.Name] = append(names[st.Name], st.Index)
	}
	return names
}

// requireLength is backends.ErrDataLoss if an image is shorter than its volume.
func requireLength(image *os.File, size int64) error {
	info, err := image.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return fmt.Errorf("image %s has %d bytes of %d: %w", image.Name(), info.Size(), size, backends.ErrDataLoss)
	}
	return nil
}

// checkLength is requireLength for the image of a volume. One that is not there
// is no error here.
func checkLength(v backends.Volume) error {
	f, err := imagefile.Open(v.Dir, true)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return requireLength(f, v.SizeBytes)
}
