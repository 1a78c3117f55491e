package record

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"

	"github.com/csiemu/csiemu/backends"
)

func rename(from, to string) error { return os.Rename(from, to) }

func openRecord(name string) (*os.File, error) { return os.Open(name) }

// syncDir does nothing: a directory cannot be flushed here, and NTFS keeps its
// entries in a journal of its own.
func syncDir(string) error { return nil }

// explain gives the error of a full store its kind.
func explain(err error) error {
	if errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) {
		return fmt.Errorf("%w: %w; free space there or choose a larger directory", backends.ErrExhausted, err)
	}
	return err
}
