//go:build linux

package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An Entry is one mount as /proc/self/mountinfo has it (proc_pid_mountinfo(5)).
type Entry struct {
	// ID and Parent are mount ids, used again after an unmount. They are not
	// those of Info where the kernel has ids that are never used again.
	ID, Parent uint64
	// Dev is the device number of the file system.
	Dev uint64
	// Root is the path, within the file system, that is mounted.
	Root string
	// MountPoint is where, relative to the root directory of the process.
	MountPoint string
	// Options are the attributes of the mount, as ro,nosuid,relatime.
	Options string
	// Propagation holds the optional fields, as shared:12 and master:3.
	Propagation []string
	// FSType is the type of the file system, with a subtype behind a dot.
	FSType string
	// Source is the device, or the word that was given instead.
	Source string
	// SuperOptions are the options of the file system.
	SuperOptions string
}

// Shared reports whether mounts below this one are seen by its peers.
func (e Entry) Shared() bool {
	for _, field := range e.Propagation {
		if strings.HasPrefix(field, "shared:") {
			return true
		}
	}
	return false
}

// The longest line is two paths and two lists of options, each at most a page
// before the kernel writes every byte of it as an octal escape.
const maxLineBytes = 1 << 18

// ParseMountInfo reads the lines of a mountinfo file, with the octal escapes in
// names undone. An error names the line.
func ParseMountInfo(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		e, err := parseEntry(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("parse mountinfo line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mountinfo after line %d: %w", len(entries), err)
	}
	return entries, nil
}

// parseEntry takes a line such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseEntry(line string) (e Entry, err error) {
	fields := strings.Split(line, " ")
	end := 6 // of the optional fields
	for end < len(fields) && fields[end] != "-" {
		end++
	}
	if len(fields) != end+4 {
		return Entry{}, errors.New("it has not 6 fields, optional ones, a dash and 3 more")
	}
	if e.ID, err = strconv.ParseUint(fields[0], 10, 32); err != nil {
		return Entry{}, fmt.Errorf("mount id: %w", err)
	}
	if e.Parent, err = strconv.ParseUint(fields[1], 10, 32); err != nil {
		return Entry{}, fmt.Errorf("parent id: %w", err)
	}
	major, minor, _ := strings.Cut(fields[2], ":")
	maj, majorErr := strconv.ParseUint(major, 10, 32)
	mnr, minorErr := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(majorErr, minorErr); err != nil {
		return Entry{}, fmt.Errorf("device number: %w", err)
	}
	e.Dev = unix.Mkdev(uint32(maj), uint32(mnr))
	e.Root = unescape(fields[3])
	e.MountPoint = unescape(fields[4])
	e.Options = unescape(fields[5])
	for _, field := range fields[6:end] {
		e.Propagation = append(e.Propagation, unescape(field))
	}
	e.FSType = unescape(fields[end+1])
	e.Source = unescape(fields[end+2])
	e.SuperOptions = unescape(fields[end+3])
	return e, nil
}

// unescape turns \040 and the like, which the kernel writes for space, tab,
// newline, backslash and hash, back into bytes. Other backslashes stay.
func unescape(field string) string {
	if !strings.Contains(field, `\`) {
		return field
	}
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) {
			if b, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(b))
				i += 3
				continue
			}
		}
		out.WriteByte(field[i])
	}
	return out.String()
}

// ListUnder returns the mounts at dir and below it, in the order in which the
// kernel lists them: a mount comes behind the one that it lies on. Its time
// grows with the number of all mounts of the machine (5 ms at 4,000), so it is
// for start-up and for finding leaks; Stat answers for one path. Symbolic links
// in dir are followed.
func ListUnder(dir string) ([]Entry, error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // else it is gone, or dead: mounts may still carry its name
	}
	entries, err := listMounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts under %s: %w", dir, err)
	}
	below := strings.TrimSuffix(filepath.Clean(dir), "/") + "/"
	var found []Entry
	for _, e := range entries {
		if strings.HasPrefix(e.MountPoint+"/", below) {
			found = append(found, e)
		}
	}
	return found, nil
}

func listMounts() ([]Entry, error) {
	// Of the thread: it may be in another mount namespace than the process.
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseMountInfo(f)
}
