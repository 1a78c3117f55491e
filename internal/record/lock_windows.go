package record

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockExclusive locks one byte far behind the end, as a locked range cannot be
// read by the process that wants to say who has it.
func lockExclusive(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}
