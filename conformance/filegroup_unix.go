//go:build unix

package conformance

import (
	"os"
	"syscall"
)

// groupOfFile is the group that a file belongs to.
func groupOfFile(path string) (group int, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Gid), true
}
