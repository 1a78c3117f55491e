package record

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// takeLock locks the file for as long as it is open and writes this process's
// id into it for whoever comes second. The file itself stays: removing it would
// let two processes lock two files of one name.
func takeLock(name string) (_ *os.File, err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := awaitLock(f); err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("%w by %s", ErrLocked, holder(f))
		}
		return nil, err
	}
	sign(f)
	return f, nil
}

// lockWait is how long a lock that is taken may last. A process that is killed
// while it starts another one shares its open files with that one until it runs
// its own program.
const (
	lockWait = 200 * time.Millisecond
	lockLook = 10 * time.Millisecond
)

func awaitLock(f *os.File) error {
	err := lockExclusive(f)
	if !errors.Is(err, ErrLocked) {
		return err
	}
	late := time.NewTimer(lockWait)
	defer late.Stop()
	look := time.NewTicker(lockLook)
	defer look.Stop()
	for {
		select {
		case <-late.C:
			return err
		case <-look.C:
			if err = lockExclusive(f); !errors.Is(err, ErrLocked) {
				return err
			}
		}
	}
}

// signBytes is the length of what a holder writes. It is always the same, so
// that a store that has become full can still be opened.
const signBytes = 128

// sign says who has the lock. Where that cannot be written nothing is better
// than the name of an earlier holder; the lock holds without it.
func sign(f *os.File) {
	host, _ := os.Hostname()
	s := fmt.Sprintf("%d %.100s", os.Getpid(), host)
	if _, err := f.WriteAt(fmt.Appendf(nil, "%-*s\n", signBytes-1, s), 0); err != nil {
		_ = f.Truncate(0)
	}
}

// holder reads who has the lock. The host's name is part of it because
// containers that share a directory count their processes each for itself.
func holder(f *os.File) string {
	var b [signBytes]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, host, _ := strings.Cut(strings.TrimSpace(string(b[:n])), " ")
	here, _ := os.Hostname()
	switch _, err := strconv.Atoi(pid); {
	case err != nil:
		return "another process"
	case host != here:
		return fmt.Sprintf("process %s on %q", pid, host)
	case pid == strconv.Itoa(os.Getpid()):
		return fmt.Sprintf("process %s (this one)", pid)
	default:
		return "process " + pid
	}
}
