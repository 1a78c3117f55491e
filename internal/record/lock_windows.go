package record

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockExclusive locks one byte far behind the end, as a locked range cannot be
// read by the process that wants to say who has it.
func lockExclusive(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1} }

// unlock ends the lock before the file is closed, after which the system may
// take its time.
func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte())
}
