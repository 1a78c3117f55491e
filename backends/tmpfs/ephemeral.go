//go:build linux

package tmpfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/step"
)

// EphemeralBytes is the size of an ephemeral volume that names none: 64 MiB.
const EphemeralBytes = 64 << 20

// MakeEphemeral mounts a tmpfs in the directory of the volume.
func (n *node) MakeEphemeral(ctx context.Context, r backends.EphemeralRequest) (backends.Staged, error) {
	s, err := n.makeEphemeral(ctx, r)
	if err != nil {
		return backends.Staged{}, fmt.Errorf("make ephemeral volume %s: %w", r.VolumeID, err)
	}
	return s, nil
}

func (n *node) makeEphemeral(ctx context.Context, r backends.EphemeralRequest) (s backends.Staged, err error) {
	o, err := ephemeralOptions(r)
	if err != nil {
		return s, err
	}
	s = backends.Staged{VolumeID: r.VolumeID, Path: dataDir(r.Dir), FSType: fsType, Options: o.String()}
	dev, err := device(s.Path)
	if errors.Is(err, backends.ErrDataLoss) { // not there yet
		if err := os.Mkdir(s.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return s, err
		}
		if err := mount.Mount(ctx, sourcePrefix+r.VolumeID, s.Path, fsType, o); err != nil {
			return s, errors.Join(err, os.Remove(s.Path))
		}
		if err := step.Done(ctx, "tmpfs.inline.mounted"); err != nil {
			return s, err
		}
		dev, err = device(s.Path)
	}
	if err != nil {
		return s, err
	}
	return s, describe(&s, s.Path, dev)
}

func ephemeralOptions(r backends.EphemeralRequest) (mount.Options, error) {
	if err := checkType(r.FSType); err != nil {
		return mount.Options{}, err
	}
	size := r.SizeBytes
	switch {
	case size < 0:
		return mount.Options{}, fmt.Errorf("size of %d bytes: %w", size, backends.ErrInvalid)
	case size == 0:
		size = EphemeralBytes
	}
	flags := []string{sizeOption(size)}
	gid, grouped, err := nodemount.ParseGroup(r.Group)
	if err != nil {
		return mount.Options{}, err
	}
	if grouped {
		flags = append(flags, "gid="+strconv.Itoa(gid), "mode=2770")
	}
	return mount.ParseOptions(append(flags, r.MountFlags...))
}

// RemoveEphemeral unmounts the volume's tmpfs, also when s is the record of a
// MakeEphemeral that was killed and has the directory of the volume as its path.
// What is in use goes with its last user.
func (n *node) RemoveEphemeral(ctx context.Context, s backends.Staged) error {
	dir := s.Path
	if filepath.Base(dir) != dataName {
		dir = dataDir(dir)
	}
	err := unmountAll(dir)
	if err == nil {
		err = step.Done(ctx, "tmpfs.inline.unmounted")
	}
	if err == nil {
		err = mount.RemoveTarget(dir)
	}
	if err != nil {
		return fmt.Errorf("remove ephemeral volume %s: %w", s.VolumeID, err)
	}
	return nil
}
