//go:build linux

package filesystem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// types are all file systems with a small size of each.
var types = map[filesystem.Type]int64{
	filesystem.Ext4:  64 * mebibyte,
	filesystem.XFS:   300 * mebibyte,
	filesystem.Btrfs: 256 * mebibyte,
}

// shared is the Maker of all tests that are not about the Maker: mkfs runs once
// a shape for them together.
var shared = sync.OnceValue(func() *filesystem.Maker { return filesystem.NewMaker(filesystem.Options{}) })

// needType skips the test where a type cannot be made and mounted.
func needType(tb testing.TB, t filesystem.Type) {
	tb.Helper()
	testenv.Need(tb, map[filesystem.Type]kernel.Feature{
		filesystem.Ext4: kernel.Ext4, filesystem.XFS: kernel.XFS, filesystem.Btrfs: kernel.Btrfs,
	}[t])
}

// shortOnly skips the test for all types but one where little time is wanted.
func shortOnly(tb testing.TB, t, only filesystem.Type) {
	tb.Helper()
	if testing.Short() && t != only {
		tb.Skip("-short")
	}
}

// newImage makes a sparse file of that many bytes.
func newImage(tb testing.TB, size int64) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "image")
	require.NoError(tb, os.WriteFile(path, nil, 0o600))
	require.NoError(tb, os.Truncate(path, size))
	return path
}

// newFilesystem makes a file system that fills a new image.
func newFilesystem(tb testing.TB, m *filesystem.Maker, t filesystem.Type, size int64) string {
	tb.Helper()
	needType(tb, t)
	path := newImage(tb, size)
	_, err := m.Format(tb.Context(), path, t, size, false)
	require.NoError(tb, err)
	return path
}

// attach binds a loop device to an image for the length of the test.
func attach(tb testing.TB, path string, c loopdev.Config) *loopdev.Device {
	tb.Helper()
	testenv.Need(tb, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pool.Close()) })
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(tb, err)
	defer image.Close()
	c.Name, c.Autoclear = "test-"+rand.Text(), true
	device, err := pool.Attach(tb.Context(), image, c)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_, err := pool.Detach(context.Background(), device)
		require.NoError(tb, err)
		requireSoon(tb, func() bool {
			status, err := loopdev.StatusOf(device.Index, loopdev.Options{})
			return err != nil || status.Name != c.Name
		}, "%s is still bound", device.Path())
	})
	return device
}

// requireSoon waits for what the kernel does when others let go: a program may
// look at all loop devices, or run in a mount namespace that was copied while
// something of this test was mounted.
func requireSoon(tb testing.TB, condition func() bool, message string, arguments ...any) {
	tb.Helper()
	require.Eventually(tb, condition, time.Minute, time.Millisecond, append([]any{message}, arguments...)...)
}

// mounted is a mount that ends with the test, if not before.
type mounted struct {
	device, dir string
	done        bool
}

// mount mounts a device without any option.
func mount(tb testing.TB, device string, t filesystem.Type) *mounted {
	tb.Helper()
	m := &mounted{device: device, dir: tb.TempDir()}
	require.NoError(tb, unix.Mount(device, m.dir, string(t), 0, ""))
	tb.Cleanup(func() { m.unmount(tb) })
	return m
}

func (m *mounted) unmount(tb testing.TB) {
	tb.Helper()
	if m.done {
		return
	}
	unmount(tb, m.dir)
	m.done = true
	requireSoon(tb, func() bool {
		file, err := os.OpenFile(m.device, os.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			return false
		}
		return file.Close() == nil
	}, "%s is still mounted somewhere", m.device)
}

// unmount unmounts a directory. A child that another test starts has a copy of
// every descriptor, also of those on this mount, until it runs its program.
func unmount(tb testing.TB, dir string) {
	tb.Helper()
	requireSoon(tb, func() bool {
		err := unix.Unmount(dir, 0)
		return !errors.Is(err, unix.EBUSY) && assert.NoError(tb, err)
	}, "%s is in use", dir)
}

// fill writes files of several sizes, in a directory of their own, and reads
// them back after they were flushed.
func (m *mounted) fill(tb testing.TB) {
	tb.Helper()
	dir := filepath.Join(m.dir, "data")
	require.NoError(tb, os.Mkdir(dir, 0o755))
	for _, size := range []int{0, 1, 4 * kibibyte, 100 * kibibyte, 2 * mebibyte} {
		data := make([]byte, size)
		rand.Read(data)
		path := filepath.Join(dir, rand.Text())
		require.NoError(tb, os.WriteFile(path, data, 0o644))
		got, err := os.ReadFile(path)
		require.NoError(tb, err)
		require.True(tb, bytes.Equal(data, got))
	}
	root, err := os.Open(m.dir)
	require.NoError(tb, err)
	defer root.Close()
	require.NoError(tb, unix.Syncfs(int(root.Fd())))
}

// check is what the file system's own tool thinks of a device or image.
func check(tb testing.TB, path string, t filesystem.Type) error {
	tb.Helper()
	switch t {
	case filesystem.XFS:
		return run(tb, "xfs_repair", "-n", path)
	case filesystem.Btrfs:
		return run(tb, "btrfs", "check", "--readonly", path)
	default:
		return run(tb, "e2fsck", "-fn", path)
	}
}

// checkCopy is what the tool thinks of the copy of the superblock at an offset.
// e2fsck finds fault with any fresh file system that way, as copies of the group
// descriptors have no flags; dumpe2fs looks at the superblock only.
func checkCopy(tb testing.TB, path string, t filesystem.Type, offset int64) error {
	tb.Helper()
	switch t {
	case filesystem.XFS:
		return check(tb, path, t) // which compares all of them
	case filesystem.Btrfs:
		return run(tb, "btrfs", "check", "--readonly", "--super", "1", path)
	default:
		const blockSize = 0x18
		block := int64(1024) << readAt(tb, path, offset+blockSize, 1)[0]
		return run(tb, "dumpe2fs", "-h", "-o", fmt.Sprintf("superblock=%d", offset/block), "-o", fmt.Sprintf("blocksize=%d", block), path)
	}
}

// run runs a tool, or skips the test where the machine does not have it.
func run(tb testing.TB, name string, arguments ...string) error {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		tb.Skip(err)
	}
	output, err := exec.CommandContext(tb.Context(), name, arguments...).CombinedOutput()
	if err != nil {
		return &checkError{name + " " + strings.Join(arguments, " "), err, string(output)}
	}
	return nil
}

type checkError struct {
	command string
	err     error
	output  string
}

func (e *checkError) Error() string { return e.command + ": " + e.err.Error() + "\n" + e.output }

// probe looks at a device.
func probe(tb testing.TB, path string) filesystem.Content {
	tb.Helper()
	content, err := filesystem.Probe(tb.Context(), path)
	require.NoError(tb, err)
	return content
}

// patch changes bytes of a file.
func patch(tb testing.TB, path string, offset int64, data []byte) {
	tb.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(tb, err)
	defer file.Close()
	_, err = file.WriteAt(data, offset)
	require.NoError(tb, err)
}

// readAt returns bytes of a file.
func readAt(tb testing.TB, path string, offset int64, n int) []byte {
	tb.Helper()
	file, err := os.Open(path)
	require.NoError(tb, err)
	defer file.Close()
	data := make([]byte, n)
	_, err = file.ReadAt(data, offset)
	require.NoError(tb, err)
	return data
}
