package dirwatch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// gone reports whether the events say that the directory is not where it was, or
// that the kernel watches it no more (inotify(7)).
func gone(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		name := binary.NativeEndian.Uint32(events[12:])
		if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
			return true
		}
		next := unix.SizeofInotifyEvent + int(name)
		if next > len(events) {
			return false
		}
		events = events[next:]
	}
	return false
}
