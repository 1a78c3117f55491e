//go:build linux

package mount_test

import (
	"encoding/binary"
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

// serveErrno answers everything that the kernel asks with errno, until the file
// system is unmounted. done is closed then.
func serveErrno(fd int, errno unix.Errno) (done chan struct{}) {
	const forget, initialise, interrupt, batchForget = 2, 26, 36, 42
	done = make(chan struct{})
	go func() {
		defer close(done)
		request := make([]byte, 1<<17)
		for {
			n, err := unix.Read(fd, request)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n < 40 { // ENODEV: unmounted
				return
			}
			var body [64]byte
			reply := binary.NativeEndian.AppendUint32(nil, 0) // length, below
			switch opcode := binary.NativeEndian.Uint32(request[4:]); opcode {
			case forget, interrupt, batchForget:
				continue
			case initialise:
				binary.NativeEndian.PutUint32(body[0:], 7)      // major
				binary.NativeEndian.PutUint32(body[4:], 31)     // minor
				binary.NativeEndian.PutUint32(body[20:], 1<<16) // max_write
				reply = binary.NativeEndian.AppendUint32(reply, 0)
				reply = append(reply, request[8:16]...)
				reply = append(reply, body[:]...)
			default:
				reply = binary.NativeEndian.AppendUint32(reply, uint32(-int32(errno)))
				reply = append(reply, request[8:16]...)
			}
			binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
			if _, err := unix.Write(fd, reply); err != nil && err != unix.ENOENT {
				return
			}
		}
	}()
	return done
}
