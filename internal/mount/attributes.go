//go:build linux

package mount

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An attribute is an option that belongs to the mount, not to the file system.
// Of those that speak of the same thing only the last counts.
type attribute struct {
	about string
	set   uint64 // bits of MOUNT_ATTR_*
	clear uint64
	// undoes is the one option that this one takes back; it leaves others
	// about the same thing alone.
	undoes string
}

// attributeOf returns the attribute called key.
func attributeOf(key string) (attribute, bool) {
	const atime = unix.MOUNT_ATTR__ATIME
	switch key {
	case "ro":
		return attribute{about: "write", set: unix.MOUNT_ATTR_RDONLY}, true
	case "rw":
		return attribute{about: "write", clear: unix.MOUNT_ATTR_RDONLY}, true
	case "nosuid":
		return attribute{about: "suid", set: unix.MOUNT_ATTR_NOSUID}, true
	case "suid":
		return attribute{about: "suid", clear: unix.MOUNT_ATTR_NOSUID}, true
	case "nodev":
		return attribute{about: "dev", set: unix.MOUNT_ATTR_NODEV}, true
	case "dev":
		return attribute{about: "dev", clear: unix.MOUNT_ATTR_NODEV}, true
	case "noexec":
		return attribute{about: "exec", set: unix.MOUNT_ATTR_NOEXEC}, true
	case "exec":
		return attribute{about: "exec", clear: unix.MOUNT_ATTR_NOEXEC}, true
	case "nodiratime":
		return attribute{about: "diratime", set: unix.MOUNT_ATTR_NODIRATIME}, true
	case "diratime":
		return attribute{about: "diratime", clear: unix.MOUNT_ATTR_NODIRATIME}, true
	case "nosymfollow":
		return attribute{about: "symfollow", set: unix.MOUNT_ATTR_NOSYMFOLLOW}, true
	case "symfollow":
		return attribute{about: "symfollow", clear: unix.MOUNT_ATTR_NOSYMFOLLOW}, true
	// The kernel wants the whole field of atime cleared by who sets a part.
	case "noatime":
		return attribute{about: "atime", set: unix.MOUNT_ATTR_NOATIME, clear: atime}, true
	case "relatime":
		return attribute{about: "atime", set: unix.MOUNT_ATTR_RELATIME, clear: atime}, true
	case "strictatime":
		return attribute{about: "atime", set: unix.MOUNT_ATTR_STRICTATIME, clear: atime}, true
	case "atime":
		return attribute{about: "atime", clear: atime, undoes: "noatime"}, true
	case "norelatime":
		return attribute{about: "atime", clear: atime, undoes: "relatime"}, true
	case "nostrictatime":
		return attribute{about: "atime", clear: atime, undoes: "strictatime"}, true
	}
	return attribute{}, false
}

func (e entry) isAttribute() bool {
	_, ok := attributeOf(e.key)
	return ok && !e.valued
}

// addAttribute puts e in the place of what it overrides.
func (o *Options) addAttribute(e entry) error {
	if e.valued {
		return fmt.Errorf("option %q takes no value", e.key)
	}
	added, _ := attributeOf(e.key)
	sameMatter := func(old entry) bool {
		a, _ := attributeOf(old.key)
		return a.about == added.about
	}
	if i := slices.IndexFunc(o.entries, sameMatter); i >= 0 {
		old, _ := attributeOf(o.entries[i].key)
		if added.undoes != "" && old.undoes == "" && added.undoes != o.entries[i].key {
			return nil // nothing to take back
		}
		o.entries = slices.Delete(o.entries, i, i+1)
	}
	o.entries = append(o.entries, e)
	return nil
}

// attributeBits returns the bits of MOUNT_ATTR_* that the options set, and
// those that they clear where a mount has them already. set wins.
func (o Options) attributeBits() (set, unset uint64) {
	for _, e := range o.entries {
		if e.isAttribute() {
			a, _ := attributeOf(e.key)
			set |= a.set
			unset |= a.clear
		}
	}
	return set, unset
}

// What becomes of an option.
type fate int

const (
	parameterOption fate = iota
	attributeOption
	ignored
	refused
)

// disposition says what becomes of an option.
func disposition(e entry) fate {
	if _, ok := attributeOf(e.key); ok {
		return attributeOption
	}
	switch e.key {
	case "", "defaults", "auto", "noauto", "nouser", "nousers", "noowner", "nogroup",
		"nofail", "_netdev", "silent", "loud", "comment":
		return ignored
	case "bind", "rbind", "move", "remount", "beneath",
		"shared", "private", "slave", "unbindable",
		"rshared", "rprivate", "rslave", "runbindable",
		"loop", "user", "users", "owner", "group", "helper", "uhelper",
		"source":
		return refused
	}
	switch {
	case strings.HasPrefix(e.key, "X-mount."):
		return refused
	case strings.HasPrefix(e.key, "x-"), strings.HasPrefix(e.key, "X-"):
		return ignored
	}
	return parameterOption
}
