//go:build linux

package mount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// Options are parsed mount options: attributes of the mount, such as noexec,
// and parameters of the file system, such as nouuid, in the order in which they
// were given. The zero value holds none. Options are never changed once made,
// and may be shared.
//
// The options are those of mount(8):
//
//   - Attributes are ro, rw, nosuid, suid, nodev, dev, noexec, exec, noatime,
//     atime, relatime, norelatime, strictatime, nostrictatime, nodiratime,
//     diratime, nosymfollow and symfollow. The later of two that contradict each
//     other wins, and is the only one kept. As in mount(8), atime takes back
//     noatime and nothing else, norelatime relatime, and nostrictatime
//     strictatime; what is left then is the kernel's default, relatime. Mount
//     gives ro to the file system as well.
//   - defaults, auto, noauto, nouser, nousers, noowner, nogroup, nofail,
//     _netdev, silent, loud, and names that begin with comment=, x- or X- are
//     notes for other programs. They are ignored and not kept.
//   - bind, rbind, move, remount, beneath, the propagation types (shared,
//     rslave, …), loop, user, users, owner, group, helper=, uhelper= and
//     X-mount.… ask mount(8) for another operation, and source= for another
//     device: they are refused.
//   - Everything else is a parameter of the file system, also sync, dirsync,
//     lazytime and mand, and is passed on as it is. The file system takes the
//     parameters in order, so with most of them the later wins. Of parameters
//     that are equal to the letter only the last is kept.
type Options struct {
	entries []entry
}

// An entry is one option: "key" or "key=value".
type entry struct {
	key, value string
	valued     bool
}

// ParseOptions parses mount options. Each flag may hold several, separated by
// commas; a value in double quotes may contain commas, as in
// context="system_u:object_r:container_file_t:s0:c1,c2", and there is no other
// quoting: a double quote elsewhere, a comma behind a backslash, control
// characters such as NUL and newline, text that is not UTF-8, values longer than
// the 255 bytes that fsconfig takes, and names that are none are refused. So is
// what Options says is refused. All errors wrap backends.ErrInvalid; they name
// the option but not its value, which may be sensitive.
func ParseOptions(flags []string) (Options, error) {
	return Options{}.With(flags...)
}

// With returns o with more options behind its own, parsed as by ParseOptions.
func (o Options) With(opts ...string) (Options, error) {
	result := Options{entries: slices.Clone(o.entries)}
	for _, list := range opts {
		for list != "" {
			e, rest, err := cutEntry(list)
			if err != nil {
				return Options{}, fmt.Errorf("parse mount options: %w: %w", err, backends.ErrInvalid)
			}
			list = rest
			if err := result.add(e); err != nil {
				return Options{}, fmt.Errorf("parse mount options: %w: %w", err, backends.ErrInvalid)
			}
		}
	}
	return result, nil
}

// ReadOnly reports whether the options ask for a read-only mount.
func (o Options) ReadOnly() bool {
	return slices.Contains(o.entries, entry{key: "ro"})
}

// Attributes returns the attributes among the options: what Bind takes. The
// parameters of the file system, which a second mount of it cannot change, are
// left out.
func (o Options) Attributes() Options {
	return Options{entries: slices.DeleteFunc(slices.Clone(o.entries), func(e entry) bool {
		return !e.isAttribute()
	})}
}

// String returns the options as mount -o takes them, in double quotes where
// that is needed. ParseOptions of it gives options equal to o.
func (o Options) String() string {
	parts := make([]string, len(o.entries))
	for i, e := range o.entries {
		parts[i] = e.String()
	}
	return strings.Join(parts, ",")
}

// Parameters returns the parameters of the file system among the options, one
// an entry, each as String writes it.
func (o Options) Parameters() []string {
	parameters := o.parameters()
	texts := make([]string, len(parameters))
	for i, p := range parameters {
		texts[i] = p.String()
	}
	return texts
}

// parameters returns what is not an attribute.
func (o Options) parameters() []entry {
	return slices.DeleteFunc(slices.Clone(o.entries), entry.isAttribute)
}

// add puts e behind the other options and drops those that it overrides.
func (o *Options) add(e entry) error {
	switch disposition(e) {
	case ignored:
		return nil
	case refused:
		return fmt.Errorf("option %q asks mount(8) for another operation", e.key)
	case attributeOption:
		return o.addAttribute(e)
	}
	o.entries = slices.DeleteFunc(o.entries, func(old entry) bool { return old == e })
	o.entries = append(o.entries, e)
	return nil
}
