//go:build unix

package record

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process that is being started shares all open files until it runs its own
// program; what it shares is a duplicate of the descriptor.
func TestLockOfADuplicate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	share := func(d *Dir) int {
		fd, err := unix.FcntlInt(d.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	d := open(t, dir, Options{})
	fd := share(d)
	require.NoError(t, d.Close())
	d = open(t, dir, Options{})
	require.NoError(t, unix.Close(fd))

	// A killed process cannot unlock; the next one waits a moment.
	fd = share(d)
	require.NoError(t, d.lock.Close())
	d.closed = true
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, ErrLocked)
	begun := make(chan struct{})
	go func() {
		close(begun)
		check(t, unix.Close(fd))
	}()
	<-begun
	open(t, dir, Options{})
}
