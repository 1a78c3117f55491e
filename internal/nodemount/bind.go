//go:build linux

package nodemount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/step"
)

// BindDir makes the directory source, the root of a staged volume, visible at
// target and creates the last element of target if it is missing. After an
// error nothing is left.
func BindDir(ctx context.Context, source, target string, o mount.Options) error {
	return bind(ctx, source, target, o, mount.MakeDirTarget)
}

// BindFile makes the device node source visible at target and creates the last
// element of target, a file, if it is missing. After an error nothing is left.
func BindFile(ctx context.Context, source, target string, o mount.Options) error {
	return bind(ctx, source, target, o, mount.MakeFileTarget)
}

func bind(ctx context.Context, source, target string, o mount.Options, makeTarget func(string) (bool, error)) error {
	created, err := makeTarget(target)
	if err != nil {
		return err
	}
	err = step.Done(ctx, "target.made")
	if err == nil {
		err = mount.Bind(ctx, source, target, o)
	}
	if err != nil && created {
		err = errors.Join(err, mount.RemoveTarget(target))
	}
	return err
}

// Unbind takes away what is mounted at target, if anything, and removes the last
// element of target. A busy mount is backends.ErrPrecondition, unless dead says
// that there is nothing to wait for: then it goes with its last user.
func Unbind(ctx context.Context, target string, dead func() bool) error {
	if err := Unmount(target, dead); err != nil {
		return err
	}
	if err := step.Done(ctx, "target.unmounted"); err != nil {
		return err
	}
	return mount.RemoveTarget(target)
}

// Unmount takes away what is mounted at target, if anything, as Unbind does.
func Unmount(target string, dead func() bool) error {
	err := mount.Unmount(target)
	if err == nil || !errors.Is(err, mount.ErrBusy) {
		return err
	}
	if info, statErr := mount.Stat(target); (statErr == nil && info.Dead) || dead() {
		return mount.Detach(target)
	}
	if errors.Is(err, backends.ErrPrecondition) {
		return err
	}
	return fmt.Errorf("%w: %w", err, backends.ErrPrecondition)
}

// PublishDir binds the staging path of s at the path of r, unless it is there
// already in the same way; isAt says whether the volume is mounted at a path.
// Anything else that is there is backends.ErrExists, and so is a directory with
// entries: unpublishing could not remove it. A volume that was staged for
// writing, and refuses writes by now, is backends.ErrPrecondition.
func PublishDir(ctx context.Context, s backends.Staged, r backends.PublishRequest, isAt func(path string) (bool, error)) error {
	staged, err := mount.ParseOptions([]string{s.Options})
	if err != nil {
		return err
	}
	o, err := BindOptions(s.Options, r.MountFlags, r.ReadOnly)
	if err != nil {
		return err
	}
	readOnly := o.ReadOnly() || staged.ReadOnly()
	if !readOnly {
		if err := CheckWritable(s.Path); err != nil {
			return err
		}
	}
	_, mounted, err := Device(r.Path)
	if err != nil {
		return err
	}
	if !mounted {
		if err := requireEmpty(r.Path); err != nil {
			return err
		}
		return BindDir(ctx, s.Path, r.Path, o)
	}
	switch ours, err := isAt(r.Path); {
	case err != nil:
		return err
	case !ours:
		return fmt.Errorf("something else is mounted there: %w", backends.ErrExists)
	}
	switch have, err := isReadOnly(r.Path); {
	case err != nil:
		return err
	case have != readOnly:
		return fmt.Errorf("it is published there with read-only %t: %w", have, backends.ErrExists)
	}
	return nil
}

// requireEmpty is backends.ErrExists for a directory with entries. What is no
// directory is for others to refuse.
func requireEmpty(path string) error {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil
	case err != nil:
		return fmt.Errorf("look into the target: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	switch {
	case len(names) > 0:
		return fmt.Errorf("%s is a directory with entries, such as %q: %w", path, names[0], backends.ErrExists)
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("look into the target: %w", err)
	}
	return nil
}
