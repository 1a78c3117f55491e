// Package safepath decides by its text alone whether a path that a caller sent
// may be worked on.
//
// The paths of CSI name places in the file system of a node, which is Linux, so
// they are judged the same way on every system: absolute, in their shortest
// form, and of characters that survive a log line and a JSON record. Whether
// symbolic links lie on the way is the kernel's to say; package mount asks it
// while it opens the path.
package safepath

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csiemu/csiemu/backends"
)

// The longest path and element that Linux takes, in bytes: PATH_MAX less its
// final NUL, and the NAME_MAX of every file system that csiemu makes.
const (
	MaxBytes        = 4095
	MaxElementBytes = 255
)

// CheckPath returns nil if p is an absolute path that is clean (no empty, "."
// or ".." element, no slash at the end), is not the root directory itself, is
// valid UTF-8 without control characters such as NUL or newline, and is no
// longer than Linux takes. Otherwise the error wraps backends.ErrInvalid and
// names the path and the reason.
//
// Slash paths are taken on every system; Windows takes its own absolute paths,
// such as C:\volumes\a, as well. CheckPath touches no file.
func CheckPath(p string) error {
	if len(p) > MaxBytes {
		// Not quoted: the path alone would fill the message.
		return fmt.Errorf("check path of %d bytes: longer than %d bytes: %w", len(p), MaxBytes, backends.ErrInvalid)
	}
	if reason := objection(p); reason != "" {
		return fmt.Errorf("check path %q: %s: %w", p, reason, backends.ErrInvalid)
	}
	return nil
}

// objection says what is wrong with p, or nothing.
func objection(p string) string {
	if p == "" {
		return "is empty"
	}
	if !utf8.ValidString(p) {
		return "is not valid UTF-8"
	}
	if strings.ContainsFunc(p, unicode.IsControl) {
		return "contains a control character"
	}
	clean, parent, separator := path.Clean, path.Dir, "/"
	if !path.IsAbs(p) {
		if !filepath.IsAbs(p) {
			return "is not absolute"
		}
		clean, parent, separator = filepath.Clean, filepath.Dir, string(filepath.Separator)
	}
	if separator == "/" && filepath.Separator != '/' && strings.ContainsRune(p, filepath.Separator) {
		// The system would see elements here that were not looked at.
		return "mixes separators"
	}
	if shortest := clean(p); shortest != p {
		return fmt.Sprintf("is not in its shortest form %q", shortest)
	}
	if parent(p) == p {
		return "is the root directory"
	}
	for element := range strings.SplitSeq(p, separator) {
		if len(element) > MaxElementBytes {
			return fmt.Sprintf("has an element of %d bytes, longer than %d", len(element), MaxElementBytes)
		}
	}
	return ""
}
