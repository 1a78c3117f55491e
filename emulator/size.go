package emulator

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"github.com/csiemu/csiemu/backends"
)

// sizeKey is the volume attribute with which a pod gives its inline volume a
// size: bytes, or a number with a suffix such as 64Mi.
const sizeKey = "size"

// parseSize reads a number of bytes with an optional suffix: 64Mi and 1GiB are
// powers of 1024, 500M and 2GB of 1000. The empty string is 0.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size such as 64Mi: %w", s, backends.ErrInvalid)
	}
	return int64(n), nil
}
