//go:build linux

package filesystem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
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
	filesystem.Btrfs: 110 * mebibyte,
}

// need skips the test where the machine lacks a feature.
func need(tb testing.TB, features ...kernel.Feature) {
	tb.Helper()
	for _, feature := range features {
		if err := kernel.Probe(context.Background(), feature); err != nil {
			tb.Skip(err)
		}
	}
}

// needType skips the test where a type cannot be made and mounted.
func needType(tb testing.TB, t filesystem.Type) {
	tb.Helper()
	need(tb, map[filesystem.Type]kernel.Feature{
		filesystem.Ext4: kernel.Ext4, filesystem.XFS: kernel.XFS, filesystem.Btrfs: kernel.Btrfs,
	}[t])
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
	need(tb, kernel.Root, kernel.Loop, kernel.LoopConfigure)
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
		inUse, err := pool.Detach(context.Background(), device)
		require.NoError(tb, err)
		require.False(tb, inUse, "%s is still in use", device.Path())
		// Another program that looks at all loop devices, as some do, can hold
		// it for a moment more.
		require.Eventually(tb, func() bool {
			status, err := loopdev.StatusOf(device.Index, loopdev.Options{})
			return err != nil || status.Name != c.Name
		}, 10*time.Second, time.Millisecond, "%s is still bound", device.Path())
	})
	return device
}

// mounted is a mount that ends with the test, if not before.
type mounted struct {
	dir  string
	done bool
}

// mount mounts a device without any option.
func mount(tb testing.TB, device string, t filesystem.Type) *mounted {
	tb.Helper()
	m := &mounted{dir: tb.TempDir()}
	require.NoError(tb, unix.Mount(device, m.dir, string(t), 0, ""))
	tb.Cleanup(func() { m.unmount(tb) })
	return m
}

func (m *mounted) unmount(tb testing.TB) {
	tb.Helper()
	if !m.done {
		require.NoError(tb, unix.Unmount(m.dir, 0))
		m.done = true
	}
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
	commands := map[filesystem.Type][]string{
		filesystem.Ext4:  {"e2fsck", "-fn"},
		filesystem.XFS:   {"xfs_repair", "-n"},
		filesystem.Btrfs: {"btrfs", "check", "--readonly"},
	}
	command := append(commands[t], path)
	if _, err := exec.LookPath(command[0]); err != nil {
		tb.Skipf("check %s: %v", t, err)
	}
	output, err := exec.CommandContext(tb.Context(), command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return &checkError{strings.Join(command, " "), err, string(output)}
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
