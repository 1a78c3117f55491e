package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/csiemu/csiemu/backends"
)

// groupOption carries the volume mount group in Staged.Options to the targets.
const groupOption = "gid="

// optionsOf joins mount flags, which no kernel reads here, behind the group.
// backends.ErrInvalid is returned for what no kernel would take.
func optionsOf(flags []string, group string) (string, error) {
	var all []string
	if group != "" {
		// The largest id means "leave it" to chown(2).
		if gid, err := strconv.ParseUint(group, 10, 32); err != nil || gid == 1<<32-1 {
			return "", fmt.Errorf("volume mount group %q is no group id: %w", group, backends.ErrInvalid)
		}
		all = append(all, groupOption+group)
	}
	if err := checkFlags(flags); err != nil {
		return "", err
	}
	return strings.Join(append(all, flags...), ","), nil
}

// checkFlags keeps the values of flags out of its errors: they may be secret.
func checkFlags(flags []string) error {
	for i, f := range flags {
		if f == "" || strings.ContainsFunc(f, unicode.IsControl) {
			return fmt.Errorf("mount flag %d is empty or has control characters: %w", i+1, backends.ErrInvalid)
		}
	}
	return nil
}

func split(options string) []string { return strings.Split(options, ",") }

// isReadOnly says whether options make a mount read-only.
func isReadOnly(options string) bool { return slices.Contains(split(options), "ro") }

// groupOf returns the volume mount group that options carry.
func groupOf(options string) (gid int, ok bool) {
	first, ok := strings.CutPrefix(split(options)[0], groupOption)
	if !ok {
		return 0, false
	}
	gid, err := strconv.Atoi(first)
	return gid, err == nil
}
