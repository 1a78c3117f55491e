//go:build linux

package loopdev_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// The kernel asks the backing file for its inode whenever it is asked for a
// device's name. When the server of a FUSE file is dead there is no answer, and
// the device must still be let go.
func TestDeviceWhoseBackingFileIsDeadIsDetached(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]bool{"nobody has it open": false, "somebody has it open": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, loopdev.Options{})
			testenv.Need(t, kernel.FUSE)
			path, kill := serveFUSE(t)
			backing, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			d := attach(t, pool, backing, loopdev.Config{})
			require.NoError(t, backing.Close())
			var user *os.File
			if open {
				user = openDevice(t, d, os.O_RDWR)
			}

			kill()
			_, err = d.Status()
			require.ErrorIs(t, err, unix.ENOTCONN)
			require.NotErrorIs(t, err, loopdev.ErrNotBound)
			statuses, err := pool.Scan(context.Background())
			require.NoError(t, err, "one dead device hides all others")
			require.Contains(t, statuses, loopdev.Status{Index: d.Index})

			inUse, err := pool.Detach(context.Background(), d)
			require.NoError(t, err)
			require.Equal(t, open, inUse)
			if open {
				_, err = user.ReadAt(make([]byte, 4096), 0)
				require.Error(t, err, "EIO, or the end of the file on older kernels")
				require.NoError(t, user.Close())
			}
			requireUnbound(t, d.Index)
		})
	}
}

// serveFUSE makes a file of 1 MiB of zeros that is served by a process of its
// own, and returns how to kill that.
func serveFUSE(t *testing.T) (path string, kill func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
	kill, _ = startHelper(t, "serve", path, "")
	return path, kill
}

func mountFUSE(path string) (connection *os.File, err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", fd)
	return os.NewFile(uintptr(fd), "/dev/fuse"), unix.Mount("test", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// answerFUSE speaks as much of the protocol (linux/fuse.h) as a file needs, and
// allows no attribute to be remembered.
func answerFUSE(connection *os.File) error {
	const getattr, open, read, release, fsync, flush, init = 3, 14, 15, 18, 20, 25, 26
	request := make([]byte, 256<<10)
	for {
		n, err := connection.Read(request)
		if err != nil {
			return err
		}
		in, order := request[:n], binary.NativeEndian
		reply := append([]byte(nil), make([]byte, 16)...) // length, error, unique
		copy(reply[8:], in[8:16])
		switch order.Uint32(in[4:]) {
		case init:
			out := make([]byte, 64)
			order.PutUint32(out[0:], 7)
			order.PutUint32(out[4:], 31)
			order.PutUint32(out[20:], 64<<10) // the largest write
			reply = append(reply, out...)
		case getattr:
			out := make([]byte, 104)
			order.PutUint64(out[16:], 1) // inode
			order.PutUint64(out[24:], mebibyte)
			order.PutUint32(out[76:], unix.S_IFREG|0o600)
			order.PutUint32(out[80:], 1) // links
			reply = append(reply, out...)
		case open:
			reply = append(reply, make([]byte, 16)...)
		case read:
			reply = append(reply, make([]byte, order.Uint32(in[40+16:]))...)
		case release, fsync, flush:
		default:
			refused := -int32(unix.ENOSYS)
			order.PutUint32(reply[4:], uint32(refused))
		}
		order.PutUint32(reply, uint32(len(reply)))
		if _, err := connection.Write(reply); err != nil {
			continue // the request was given up meanwhile
		}
	}
}
