package main

import (
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/csiemu/csiemu/emulator"
)

// parseSize reads a size in bytes: 1073741824, 500M (10^6), 10Gi or 10GiB
// (2^30).
func parseSize(flag, text string) (int64, error) {
	bytes, err := humanize.ParseBytes(text)
	if err != nil || bytes == 0 || bytes > math.MaxInt64 {
		return 0, usage("read --%s: %q is no size: give bytes or a unit, as in 10GiB or 500M", flag, text)
	}
	return int64(bytes), nil
}

// parsePools reads the values of --capacity, each SIZE or POOL=SIZE.
func parsePools(values []string) (map[string]int64, error) {
	pools := make(map[string]int64, len(values))
	for _, value := range values {
		name, size, named := strings.Cut(value, "=")
		if !named {
			name, size = emulator.DefaultPool, value
		}
		if name == "" {
			return nil, usage("read --capacity: %q names no pool: give SIZE or POOL=SIZE", value)
		}
		if _, twice := pools[name]; twice {
			return nil, usage("read --capacity: pool %q is given twice", name)
		}
		bytes, err := parseSize("capacity", size)
		if err != nil {
			return nil, err
		}
		pools[name] = bytes
	}
	return pools, nil
}
