//go:build linux

package freeze_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/freeze"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

// soon is how long a writer may wait after the death of who froze.
const soon = time.Second

// patience is how long a test waits for what has no time of its own.
const patience = time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(runChild(dir))
	}
	testenv.Main(m)
}

// ext4 mounts a new file system and returns its directory. That it can be
// unmounted at the end shows that nothing of it is held.
func ext4(tb testing.TB) string {
	tb.Helper()
	return ext4Over(tb, tb.TempDir())
}

// ext4Over keeps the bytes of the file system in a file in store.
func ext4Over(tb testing.TB, store string) string {
	tb.Helper()
	testenv.Need(tb, kernel.Root, kernel.Loop, kernel.Ext4, kernel.FSMount, kernel.Freeze)
	// Cleanups run when the test's own context has ended.
	ctx := context.WithoutCancel(tb.Context())
	image := filepath.Join(store, "image")
	backing, err := os.Create(image)
	require.NoError(tb, err)
	defer backing.Close()
	require.NoError(tb, backing.Truncate(32<<20))
	output, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput()
	require.NoError(tb, err, string(output))

	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pool.Close()) })
	device, err := pool.Attach(ctx, backing, loopdev.Config{Name: "freeze-" + rand.Text(), Autoclear: true})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_, err := pool.Detach(ctx, device)
		require.NoError(tb, err)
	})
	dir := tb.TempDir()
	require.NoError(tb, mount.Mount(ctx, device.Path(), dir, "ext4", mount.Options{}))
	tb.Cleanup(func() {
		require.NoError(tb, freeze.Thaw(dir)) // should the test have failed
		// A child that another test is just starting may have the files of this
		// one until it calls exec.
		require.Eventually(tb, func() bool {
			err := mount.Unmount(dir)
			return !errors.Is(err, mount.ErrBusy) && assert.NoError(tb, err)
		}, patience, time.Millisecond)
	})
	return dir
}

// bind shows the file system at dir at one more place, which is busy only as
// long as it is held there.
func bind(tb testing.TB, dir string) string {
	tb.Helper()
	target := tb.TempDir()
	require.NoError(tb, mount.Bind(tb.Context(), dir, target, mount.Options{}))
	tb.Cleanup(func() { require.NoError(tb, mount.Unmount(target)) })
	return target
}

// startWriter writes to the file system in dir; the channel gets the result.
func startWriter(dir string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(dir, "written"), []byte("text"), 0o600) }()
	return done
}

// await fails the test if nothing comes in time.
func await[T any](tb testing.TB, what string, limit time.Duration, c <-chan T) (v T) {
	tb.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		require.Fail(tb, fmt.Sprintf("no %s within %v", what, limit))
	}
	return v
}

// isFrozen asks the kernel: only a file system that is not frozen can be.
func isFrozen(tb testing.TB, dir string) bool {
	tb.Helper()
	f, err := os.Open(dir)
	require.NoError(tb, err)
	defer f.Close()
	const fiFreeze, fiThaw = 0xC0045877, 0xC0045878
	err = unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0)
	if errors.Is(err, unix.EBUSY) {
		return true
	}
	require.NoError(tb, err)
	require.NoError(tb, unix.IoctlSetInt(int(f.Fd()), fiThaw, 0))
	return false
}
