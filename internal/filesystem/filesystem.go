//go:build linux

package filesystem

import (
	"errors"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// Type is a file system that this package makes, checks and grows.
type Type string

// The types. Their values are the kernel's names.
const (
	Ext4  Type = "ext4"
	XFS   Type = "xfs"
	Btrfs Type = "btrfs"
)

var (
	// ErrNotBlank is returned when a device that is to be formatted holds
	// something already. It is a backends.ErrPrecondition.
	ErrNotBlank = fmt.Errorf("%w: device is not blank", backends.ErrPrecondition)
	// ErrInUse is returned when the device is mounted or claimed by another
	// program. It is a backends.ErrPrecondition.
	ErrInUse = fmt.Errorf("%w: device is in use", backends.ErrPrecondition)
	// ErrDamaged is returned when a check found errors that it may not repair
	// without being asked. It is a backends.ErrPrecondition.
	ErrDamaged = fmt.Errorf("%w: file system is damaged", backends.ErrPrecondition)
	// ErrNeedsMount is returned when a file system grows only while it is
	// mounted.
	ErrNeedsMount = errors.New("file system grows only while it is mounted")
)

// ParseType returns the type of that name; the empty name is Ext4. Any other
// name is a backends.ErrInvalid.
func ParseType(name string) (Type, error) {
	switch t := Type(name); t {
	case "":
		return Ext4, nil
	case Ext4, XFS, Btrfs:
		return t, nil
	}
	return "", fmt.Errorf("use file system %q (have ext4, xfs, btrfs): %w", name, backends.ErrInvalid)
}

// MinBytes is the smallest size, in bytes, that t can have. It is mkfs's own
// limit for xfs. mkfs makes btrfs of 109 MiB, but the kernel resizes none to less
// than 256 MiB; ext4 needs 2 MiB to have a journal.
func MinBytes(t Type) int64 {
	const mebibyte = 1 << 20
	switch t {
	case XFS:
		return 300 * mebibyte
	case Btrfs:
		return 256 * mebibyte
	default:
		return 2 * mebibyte
	}
}

// feature is what the kernel package calls t.
func (t Type) feature() kernel.Feature {
	switch t {
	case XFS:
		return kernel.XFS
	case Btrfs:
		return kernel.Btrfs
	default:
		return kernel.Ext4
	}
}
