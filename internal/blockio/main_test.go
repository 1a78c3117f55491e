//go:build linux

package blockio_test

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/testenv"
)

const (
	kiB = int64(1) << 10
	miB = int64(1) << 20
)

func TestMain(m *testing.M) { testenv.Main(m) }

// onXFS names the store whose files share blocks.
const onXFS = "on xfs with shared blocks"

// stores are the kinds of file system that images lie on.
var stores = map[string]func(testing.TB) string{
	"in the temporary directory": testing.TB.TempDir,
	"on tmpfs":                   func(tb testing.TB) string { return idleAtEnd(tb, testenv.TmpfsDir(tb)) },
	onXFS:                        xfs,
}

func xfs(tb testing.TB) string { return idleAtEnd(tb, testenv.XFSDir(tb)) }

// idleAtEnd waits at the end of the test, before dir is unmounted, until no child
// that another test is just starting (mkfs) has the files of this one: it has
// them until it calls exec. MNT_EXPIRE only marks what is not busy.
func idleAtEnd(tb testing.TB, dir string) string {
	tb.Cleanup(func() {
		isIdle := func() bool { return errors.Is(unix.Unmount(dir, unix.MNT_EXPIRE), unix.EAGAIN) }
		require.Eventually(tb, isIdle, time.Minute, time.Millisecond)
	})
	return dir
}

// newFile makes an empty file that is closed at the end of the test.
func newFile(tb testing.TB, dir, name string) *os.File {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, f.Close()) })
	return f
}

// image makes a file of the given size with random data in the given ranges and
// holes elsewhere.
func image(tb testing.TB, dir, name string, bytes int64, data ...blockio.Extent) *os.File {
	tb.Helper()
	f := newFile(tb, dir, name)
	require.NoError(tb, f.Truncate(bytes))
	for _, e := range data {
		fill(tb, f, e)
	}
	return f
}

// fill writes random data, in which no block is like another.
func fill(tb testing.TB, f *os.File, e blockio.Extent) {
	tb.Helper()
	p := make([]byte, min(e.Length, miB))
	random := rand.NewChaCha8(sha256.Sum256([]byte(cryptorand.Text())))
	for e.Length > 0 {
		p = p[:min(e.Length, int64(len(p)))]
		_, err := random.Read(p)
		require.NoError(tb, err)
		_, err = f.WriteAt(p, e.Offset)
		require.NoError(tb, err)
		e.Offset += int64(len(p))
		e.Length -= int64(len(p))
	}
}

func size(tb testing.TB, f *os.File) int64 {
	tb.Helper()
	info, err := f.Stat()
	require.NoError(tb, err)
	return info.Size()
}

func content(tb testing.TB, f *os.File) []byte {
	tb.Helper()
	p := make([]byte, size(tb, f))
	_, err := f.ReadAt(p, 0)
	require.NoError(tb, err)
	return p
}

// digest tells whether bytes are the same without keeping them.
func digest(tb testing.TB, f *os.File, e blockio.Extent) [sha256.Size]byte {
	tb.Helper()
	hash := sha256.New()
	n, err := io.Copy(hash, io.NewSectionReader(f, e.Offset, e.Length))
	require.NoError(tb, err)
	require.Equal(tb, e.Length, n)
	return [sha256.Size]byte(hash.Sum(nil))
}

func whole(tb testing.TB, f *os.File) blockio.Extent {
	tb.Helper()
	return blockio.Extent{Offset: 0, Length: size(tb, f)}
}

// watched is a context that calls back each time its error is asked for: a known
// place of the work.
type watched struct {
	context.Context
	look func() error
}

func (w watched) Err() error {
	if err := w.look(); err != nil {
		return err
	}
	return w.Context.Err()
}

// cancelledAfter is a context that is cancelled when it was looked at so often.
func cancelledAfter(tb testing.TB, looks int) context.Context {
	return watched{tb.Context(), func() error {
		if looks--; looks < 0 {
			return context.Canceled
		}
		return nil
	}}
}
