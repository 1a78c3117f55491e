//go:build linux

package nodemount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

// BindOptions are the options of a bind mount over a volume that is mounted with
// staged. Flags may hold attributes of the mount, and those parameters of the
// file system that staged has too: a bind mount shares them and cannot have
// others, so those are backends.ErrInvalid.
func BindOptions(staged string, flags []string, readOnly bool) (mount.Options, error) {
	o, err := mount.ParseOptions(flags)
	if err != nil {
		return mount.Options{}, err
	}
	have := split(staged)
	for _, p := range Parameters(o) {
		if !slices.Contains(have, p) {
			return mount.Options{}, fmt.Errorf("mount option %q belongs to the file system, which is mounted without it (with %q): %w", name(p), staged, backends.ErrInvalid)
		}
	}
	o = o.Attributes()
	if readOnly {
		return o.With("ro")
	}
	return o, nil
}

// Parameters are those of o that are no attributes of a mount but options of
// the file system, as mount -o takes them.
func Parameters(o mount.Options) []string {
	attributes := split(o.Attributes().String())
	return slices.DeleteFunc(split(o.String()), func(s string) bool { return slices.Contains(attributes, s) })
}

// name is an option without its value, which may be sensitive.
func name(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}

// split cuts an option string at the commas outside double quotes.
func split(options string) []string {
	quoted := false
	return strings.FieldsFunc(options, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}
