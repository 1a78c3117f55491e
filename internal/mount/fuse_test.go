//go:build linux

package mount_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/mount"
)

// mountFUSE mounts a file system that lives as long as device is open and that
// nobody serves.
func mountFUSE(tb testing.TB, target string) (fd int, device *os.File) {
	tb.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(tb, err)
	device = os.NewFile(uintptr(fd), "/dev/fuse")
	tb.Cleanup(func() { _ = device.Close() })
	flags := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	require.NoError(tb, mount.Mount(tb.Context(), "test", target, "fuse", options(tb, flags)))
	return fd, device
}

// The requests of the FUSE protocol (include/uapi/linux/fuse.h) that the tests
// meet.
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42
)

// serve answers the kernel with what reply says, until the file system is
// unmounted or reply says that it is over. done is closed then.
func serve(fd int, reply func(opcode uint32) (body []byte, errno unix.Errno, more bool)) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		request := make([]byte, 1<<17)
		for more := true; more; {
			n, err := unix.Read(fd, request)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n < 40 { // ENODEV: unmounted
				return
			}
			opcode := binary.NativeEndian.Uint32(request[4:])
			if opcode == fuseForget || opcode == fuseInterrupt || opcode == fuseBatchForget {
				continue // never answered
			}
			body, errno := make([]byte, 64), unix.Errno(0)
			if opcode == fuseInit {
				binary.NativeEndian.PutUint32(body[0:], 7)      // major
				binary.NativeEndian.PutUint32(body[4:], 31)     // minor
				binary.NativeEndian.PutUint32(body[20:], 1<<16) // max_write
			} else {
				body, errno, more = reply(opcode)
			}
			answer := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
			answer = binary.NativeEndian.AppendUint32(answer, uint32(-int32(errno)))
			answer = append(answer, request[8:16]...) // the request's number
			if _, err := unix.Write(fd, append(answer, body...)); err != nil && !errors.Is(err, unix.ENOENT) {
				return
			}
		}
	}()
	return done
}

// serveErrno answers every request with an error.
func serveErrno(fd int, errno unix.Errno) (done chan struct{}) {
	return serve(fd, func(uint32) ([]byte, unix.Errno, bool) { return nil, errno, true })
}

// serveOnce answers until the root was asked about once, with what the kernel
// may remember for an hour.
func serveOnce(fd int) (done chan struct{}) {
	return serve(fd, func(opcode uint32) ([]byte, unix.Errno, bool) {
		if opcode != fuseGetattr {
			return nil, unix.ENOSYS, true
		}
		body := make([]byte, 104)
		binary.NativeEndian.PutUint64(body[0:], 3600)                   // seconds that it is valid
		binary.NativeEndian.PutUint64(body[16:], 1)                     // inode
		binary.NativeEndian.PutUint32(body[16+60:], unix.S_IFDIR|0o755) // mode
		binary.NativeEndian.PutUint32(body[16+64:], 2)                  // links
		return body, 0, false
	})
}
