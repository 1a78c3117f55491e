//go:build linux

package nodemount

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
)

// ParseGroup reads a numeric group id; the empty string is no group.
func ParseGroup(group string) (gid int, ok bool, err error) {
	if group == "" {
		return 0, false, nil
	}
	// The largest id means "leave it" to chown(2).
	n, err := strconv.ParseUint(group, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, false, fmt.Errorf("volume mount group %q is no group id: %w", group, backends.ErrInvalid)
	}
	return int(n), true, nil
}

// ShareWithGroup lets a group write to the directory dir and, by setgid, to what
// is created there. It changes only what is not so yet, so that it costs
// nothing and overrides nothing on a volume that is staged again.
func ShareWithGroup(dir string, gid int) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("share with group %d: %w", gid, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("share with group %d: stat %s: %w", gid, dir, err)
	}
	if int(st.Gid) != gid {
		if err := f.Chown(-1, gid); err != nil {
			return fmt.Errorf("share with group %d: %w", gid, err)
		}
	}
	// After chown, which may take setgid away.
	const bits = unix.S_ISGID | 0o070
	if st.Mode&bits != bits {
		if err := unix.Fchmod(int(f.Fd()), st.Mode&0o7777|bits); err != nil {
			return fmt.Errorf("share with group %d: chmod %s: %w", gid, dir, err)
		}
	}
	return nil
}
