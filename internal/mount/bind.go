//go:build linux

package mount

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// Bind makes source visible at target as well: a directory on a directory, or a
// file or device node on a file. Mounts below source are not taken along. It
// binds above whatever is mounted at target already: ask Stat first.
//
// The attributes among the options are set before the mount is seen; those that
// the options do not speak of stay as they are on source. ro makes the new mount
// read-only, not the file system, and does not keep a bound device node from
// being written: only a read-only device does. nodev, on the other hand, makes
// a bound device node useless. Parameters of the file system are refused, as a
// bind cannot change them: use Options.Attributes.
//
// The mount is seen at target when Bind returns nil, and nowhere otherwise. The
// errors are those of Mount; backends.ErrExists is returned when one of source
// and target is a directory and the other is not.
func Bind(ctx context.Context, source, target string, o Options) error {
	if err := bindOn(ctx, source, target, o); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

func bindOn(ctx context.Context, source, target string, o Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := refuseParameters(o); err != nil {
		return err
	}
	from, err := openPlace(source)
	if err != nil {
		return err
	}
	defer from.close()
	to, err := openPlace(target)
	if err != nil {
		return err
	}
	defer to.close()
	return withoutFork(func() error {
		mnt, err := cloneMount(from, o)
		if err != nil {
			return err
		}
		defer unix.Close(mnt)
		return attach(mnt, to)
	})
}

// cloneMount makes a mount of what lies at the place that nobody sees yet.
func cloneMount(from place, o Options) (int, error) {
	source, err := from.open(0)
	if err != nil {
		return -1, fmt.Errorf("open source: %w", err)
	}
	defer unix.Close(source)
	// Without AT_RECURSIVE.
	mnt, err := unix.OpenTree(source, "", unix.OPEN_TREE_CLONE|unix.O_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone mount: %w", classified(unlessMissing(err, kernel.FSMount)))
	}
	set, unset := o.attributeBits()
	if set|unset == 0 {
		return mnt, nil
	}
	attributes := unix.MountAttr{Attr_set: set, Attr_clr: unset}
	if err := unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		_ = unix.Close(mnt) // which is all of it
		return -1, fmt.Errorf("set attributes %s: %w", o, classified(unlessMissing(err, kernel.MountSetattr)))
	}
	return mnt, nil
}

func refuseParameters(o Options) error {
	parameters := o.parameters()
	if len(parameters) == 0 {
		return nil
	}
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.key
	}
	return fmt.Errorf("a bind cannot change the file system's options %s: %w", strings.Join(names, ", "), backends.ErrInvalid)
}
