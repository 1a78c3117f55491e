package backends

import (
	"fmt"
	"math"
)

// DefaultBytes is the size of a volume when the request names none: 1 GiB.
const DefaultBytes = 1 << 30

// Size settles the size of a volume in bytes: what r requires, else that of its
// source, else DefaultBytes or its limit if that is smaller; at least minimum,
// and a multiple of Granularity. ErrOutOfRange is returned when that is more
// than the limit, ErrInvalid when the capacity range is not one.
func (r Request) Size(minimum int64) (int64, error) {
	required, limit := r.RequiredBytes, r.LimitBytes
	if required < 0 || limit < 0 || (limit > 0 && required > limit) {
		return 0, fmt.Errorf("capacity range from %d to %d bytes is not one: %w", required, limit, ErrInvalid)
	}
	size := required
	if size == 0 && r.MinBytes == 0 {
		size = DefaultBytes
		if limit > 0 {
			size = min(size, limit/Granularity*Granularity)
		}
	}
	size = max(size, r.MinBytes, minimum, Granularity)
	if size > math.MaxInt64-Granularity {
		return 0, fmt.Errorf("%d bytes are more than a file can have: %w", size, ErrOutOfRange)
	}
	size = (size + Granularity - 1) / Granularity * Granularity
	if limit > 0 && size > limit {
		return 0, fmt.Errorf("at least %d bytes are needed (in multiples of %d, %d for the file system, %d for the source), more than the limit of %d: %w",
			size, Granularity, minimum, r.MinBytes, limit, ErrOutOfRange)
	}
	return size, nil
}
