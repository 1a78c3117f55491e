//go:build linux

package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
)

// Health sees an image that is gone, or shorter than its volume, and the device of
// a breakable volume whose process was killed.
func (b *Backend) Health(ctx context.Context, v backends.Volume) ([]backends.Condition, error) {
	info, err := os.Lstat(imagefile.Path(v.Dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []backends.Condition{{Status: backends.DataLoss, Reason: "ImageMissing", Message: "the image of the volume was removed"}}, nil
	case err != nil:
		return nil, fmt.Errorf("look at the image of volume %s: %w", v.ID, err)
	case info.Size() < v.SizeBytes:
		return []backends.Condition{{
			Status: backends.DataLoss, Reason: "ImageShort",
			Message: fmt.Sprintf("the image has %d bytes of %d", info.Size(), v.SizeBytes),
		}}, nil
	}
	if v.Breakable && b.attached(v.ID) != nil {
		switch _, err := fusefile.Ask(ctx, breakableDir(v)); {
		case errors.Is(err, fusefile.ErrNotServing):
			return []backends.Condition{{Status: backends.Inaccessible, Reason: "DeviceGone", Message: "the process under the device is gone"}}, nil
		case err != nil:
			return []backends.Condition{{Status: backends.Inaccessible, Reason: "DeviceSilent", Message: err.Error()}}, nil
		}
	}
	return nil, nil
}

// Health sees a device that is gone or fenced, a file system that is not mounted
// any more, and one that refuses writes after an error.
func (n *node) Health(_ context.Context, s backends.Staged) ([]backends.Condition, error) {
	st, err := n.status(s)
	switch {
	case errors.Is(err, loopdev.ErrNotBound):
		return []backends.Condition{{Status: backends.Inaccessible, Reason: "DeviceGone", Message: err.Error()}}, nil
	case err != nil:
		return []backends.Condition{{Status: backends.Inaccessible, Reason: "DeviceSilent", Message: err.Error()}}, nil
	case st.SizeLimit != 0:
		return []backends.Condition{{Status: backends.Inaccessible, Reason: "DeviceFenced", Message: "the device " + s.Device + " fails all I/O"}}, nil
	case s.Block:
		return nil, nil
	}
	mounted, err := n.mountedAt(s, s.Path)
	if err != nil || !mounted {
		return []backends.Condition{{Status: backends.Inaccessible, Reason: "NotMounted", Message: "the file system is not mounted at the staging path"}}, nil //nolint:nilerr // that it does not answer is the answer
	}
	options, err := mount.ParseOptions([]string{s.Options})
	if err != nil || s.ReadOnly || options.ReadOnly() {
		return nil, err
	}
	if err := nodemount.CheckWritable(s.Path); errors.Is(err, backends.ErrPrecondition) {
		return []backends.Condition{{Status: backends.Degraded, Reason: "ReadOnlyFilesystem", Message: err.Error()}}, nil
	}
	return nil, nil
}
