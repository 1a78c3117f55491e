package emulator

import (
	"fmt"

	"github.com/docker/go-units"

	"github.com/csiemu/csiemu/backends"
)

// parseSize reads a number of bytes with an optional suffix (64Mi, 1GiB, 500M;
// all of them powers of 1024). The empty string is 0.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := units.RAMInBytes(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size such as 64Mi: %w", s, backends.ErrInvalid)
	}
	return n, nil
}
