//go:build linux

package treecopy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/treecopy"
)

// dig makes a chain of directories, each in the one before, with a file in the
// last one, and hard links of it on the way down.
func dig(t *testing.T, dir, name string, levels int) {
	t.Helper()
	write(t, filepath.Join(dir, "surface"), "found")
	surface, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(surface)
	at, err := unix.Dup(surface)
	require.NoError(t, err)
	for level := range levels {
		require.NoError(t, unix.Mkdirat(at, name, 0o755))
		if level%50 == 0 {
			require.NoError(t, unix.Linkat(surface, "surface", at, "link", 0))
		}
		at = step(t, at, name)
	}
	require.NoError(t, unix.Linkat(surface, "surface", at, "bottom", 0))
	require.NoError(t, unix.Close(at))
}

// step opens name in the directory at, which it closes.
func step(t *testing.T, at int, name string) int {
	t.Helper()
	next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(at))
	return next
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

func TestCopyTreeOfAnyDepth(t *testing.T) {
	t.Parallel()
	need(t)
	cases := map[string]struct {
		name   string
		levels int
	}{
		"paths longer than the kernel takes":    {strings.Repeat("d", 255), 300},
		"more levels than descriptors for them": {"d", 2000},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dst := tmpfs(t), tmpfs(t)
			dig(t, src, c.name, c.levels)
			var looks, most int
			ctx := watched{t.Context(), func() error {
				if looks++; looks%100 == 0 {
					most = max(most, openDescriptors(t))
				}
				return nil
			}}
			require.NoError(t, treecopy.CopyTree(ctx, dst, src))
			require.Less(t, most, 500, "descriptors grow with the depth")

			var surface, bottom unix.Stat_t
			require.NoError(t, unix.Stat(filepath.Join(dst, "surface"), &surface))
			at, err := unix.Open(dst, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			for range c.levels {
				at = step(t, at, c.name)
			}
			require.NoError(t, unix.Fstatat(at, "bottom", &bottom, unix.AT_SYMLINK_NOFOLLOW))
			require.NoError(t, unix.Close(at))
			require.Equal(t, surface.Ino, bottom.Ino)
			require.Equal(t, c.levels/50+2, int(bottom.Nlink))
		})
	}
}

func TestCopyTreeOfALargeDirectory(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	large := makeDir(t, src, "large")
	for i := range 1500 {
		write(t, filepath.Join(large, fmt.Sprintf("file %d", i)), "x")
		makeDir(t, large, fmt.Sprintf("directory %d", i))
	}
	require.NoError(t, treecopy.CopyTree(t.Context(), dst, src))
	require.Equal(t, list(t, large), list(t, filepath.Join(dst, "large")))
}

// TestCopyTreeNoticesAMovedDirectory moves a directory away while the walk is
// far below it: the way back leads elsewhere then.
func TestCopyTreeNoticesAMovedDirectory(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	deep := makeDir(t, src, "a", "b", strings.Repeat("d/", 60))
	write(t, filepath.Join(deep, "bottom"), "x")
	outside := makeDir(t, src, "outside")
	moved := false
	ctx := watched{t.Context(), func() error {
		_, err := os.Lstat(filepath.Join(dst, "a", "b", strings.Repeat("d/", 59)))
		if moved || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		moved = true
		return os.Rename(filepath.Join(src, "a", "b"), filepath.Join(outside, "b"))
	}}
	require.ErrorIs(t, treecopy.CopyTree(ctx, dst, src), treecopy.ErrChanged)
	require.True(t, moved)
}

// TestCopyTreeDoesNotFollowALinkThatTookAPlace replaces an entry after it was
// listed.
func TestCopyTreeDoesNotFollowALinkThatTookAPlace(t *testing.T) {
	t.Parallel()
	need(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "secret")
	cases := map[string]struct {
		make, replace func(path string)
	}{
		"a directory": {
			make:    func(path string) { makeDir(t, path) },
			replace: func(path string) { require.NoError(t, os.Symlink(outside, path)) },
		},
		"a file": {
			make:    func(path string) { write(t, path, "harmless") },
			replace: func(path string) { require.NoError(t, os.Symlink(filepath.Join(outside, "file"), path)) },
		},
		"a file, by a FIFO": {
			make:    func(path string) { write(t, path, "harmless") },
			replace: func(path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) },
		},
	}
	for name, c := range cases {
		// The replacement happens at one look after the other.
		for looks := range 4 {
			src, dst := tmpfs(t), tmpfs(t)
			path := filepath.Join(src, "entry")
			c.make(path)
			seen := 0
			ctx := watched{t.Context(), func() error {
				if seen == looks {
					require.NoError(t, os.RemoveAll(path))
					c.replace(path)
				}
				seen++
				return nil
			}}
			err := treecopy.CopyTree(ctx, dst, src)
			for file, digest := range contents(t, dst) {
				require.NotEqual(t, contents(t, outside)["file"], digest, "%s: %s holds what is outside (%v)", name, file, err)
			}
		}
	}
	require.Empty(t, cmp.Diff([]string{"file"}, list(t, outside)))
}
