package record

import "golang.org/x/sys/unix"

// replace puts from in the place of to and, where the file system can, to in
// the place of from.
func replace(from, to string) error {
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	return rename(from, to) // there is no to yet, or no exchange here
}
