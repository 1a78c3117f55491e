package dirwatch

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const changes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

func watch(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch directory %s: %w", dir, os.NewSyscallError("inotify_init1", err))
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, changes); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("watch directory %s: %w", dir, os.NewSyscallError("inotify_add_watch", err))
	}
	changed := make(chan struct{}, 1)
	release := context.AfterFunc(ctx, func() { _ = f.Close() })
	go func() {
		defer close(changed)
		defer func() {
			if release() {
				_ = f.Close()
			}
		}()
		events := make([]byte, 64<<10)
		for {
			// What changed is not read: whoever watches looks for itself.
			n, err := f.Read(events)
			if err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
			if gone(events[:n]) {
				return
			}
		}
	}()
	return changed, nil
}
