//go:build linux

package filesystem

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
)

// Check makes a file system of type t ready to be mounted. An ext4 that was not
// unmounted cleanly, or has recorded errors, is repaired as far as that is safe
// without asking (e2fsck -p); what is more is ErrDamaged. xfs and btrfs replay
// their logs when they are mounted and need nothing, so nothing is done.
//
// A device that is mounted is ErrInUse, a read-only one a
// backends.ErrPrecondition. A missing e2fsck is a *kernel.NotSupportedError, but
// only when it is needed.
func Check(ctx context.Context, path string, t Type) error {
	if t != Ext4 {
		return nil
	}
	content, err := probeUnused(ctx, path, t)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if content.Clean {
		return nil
	}
	return e2fsck(ctx, path, "-p")
}

// probeUnused makes sure that the device is writable, not in use, and holds a
// file system of type t.
func probeUnused(ctx context.Context, path string, t Type) (Content, error) {
	dev, err := openDevice(ctx, path)
	if err != nil {
		return Content{}, err
	}
	defer dev.Close()
	content, err := Probe(ctx, path)
	if err != nil {
		return Content{}, err
	}
	if content.Type != string(t) {
		return Content{}, fmt.Errorf("%w: it holds %q, not %s", backends.ErrPrecondition, content.Type, t)
	}
	return content, nil
}

// e2fsck runs e2fsck with the given way of repair. It exits with 0 when there
// was nothing to do, and with 1 or 2 when it repaired everything (e2fsck(8)).
func e2fsck(ctx context.Context, path, repair string) error {
	const uncorrected = 4
	_, err := tool{name: "e2fsck", feature: Ext4.feature()}.run(ctx, nil, repair, path)
	switch code := exitCode(err); {
	case err == nil || code == 1 || code == 2 || code == 3:
		return nil
	case code > 0 && code&uncorrected != 0:
		return fmt.Errorf("check %s: %w: %w", path, ErrDamaged, err)
	}
	return fmt.Errorf("check %s: %w", path, err)
}
