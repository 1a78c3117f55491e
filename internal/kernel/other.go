//go:build !linux

package kernel

import (
	"context"
	"fmt"
	"runtime"
)

const linuxRemedy = "use the memory backend, or run csiemu in Linux, for example in a container of Docker Desktop"

// Probe says that every feature needs Linux.
func Probe(ctx context.Context, f Feature) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("probe kernel feature %s: %w", f, err)
	}
	return missing(f, linuxRemedy, "%s is not Linux", runtime.GOOS)
}

// Reflink says that cloning files needs Linux.
func Reflink(dir string) error {
	return missing(ReflinkFeature, linuxRemedy, "cannot clone files in %s: %s is not Linux", dir, runtime.GOOS)
}

// DirectIO says that direct I/O needs Linux.
func DirectIO(dir string) error {
	return missing(DirectIOFeature, linuxRemedy, "no direct I/O in %s: %s is not Linux", dir, runtime.GOOS)
}

// BootID says that boot ids need Linux.
func BootID() (string, error) {
	return "", fmt.Errorf("read boot id: %w", missing("boot-id", linuxRemedy, "%s is not Linux", runtime.GOOS))
}
