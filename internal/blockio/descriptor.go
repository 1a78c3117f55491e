//go:build linux

package blockio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// control runs f with the descriptor of file, which cannot be closed meanwhile.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if conn.Control(func(fd uintptr) { inner = f(int(fd)) }) != nil {
		return os.ErrClosed // the one reason, which Control says in other words
	}
	return inner
}

// retry repeats a system call that a signal interrupted; the Go runtime sends
// itself signals all the time.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func isAny(err error, targets ...unix.Errno) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
