//go:build unix && !solaris && !illumos && !aix

package rpc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockWait is how long a listener waits for others at the same directory.
// Whoever holds a directory longer than that is not one of ours.
const lockWait = 3 * time.Second

// lockDirectory keeps two processes from replacing one stale socket at the same
// moment, where the second would remove the first one's new socket. The lock
// is on the directory itself, as nothing may be created beside a CSI socket. It
// is advisory: where it cannot be had, listening goes on without it.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrPermission) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() }
	give := time.NewTimer(lockWait)
	defer give.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return unlock, nil
		}
		select {
		case <-again.C:
		case <-give.C:
			return unlock, nil
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		}
	}
}
