package rmtree_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/rmtree"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// tree makes files below dir; names that end in a slash are directories.
func tree(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(name), 0o400))
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for what, names := range map[string][]string{
		"an empty directory": nil,
		"files":              {"a", "b", ".hidden", "with space", "-dash", "né"},
		"a tree":             {"a/b/c", "a/d", "e/f/", "g"},
		"a deep tree":        {strings.Repeat("d/", 150) + "file"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			tree(t, parent, "dir/", "dirty", "other/file")
			tree(t, dir, names...)
			require.NoError(t, rmtree.Remove(t.Context(), dir))
			require.Equal(t, []string{"dirty", "other"}, list(t, parent))
			require.NoError(t, rmtree.Remove(t.Context(), dir), "gone is no error")
		})
	}
}

func TestRemoveManyFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	for i := range 1100 { // more than are read at a time
		tree(t, dir, fmt.Sprint(i))
	}
	require.NoError(t, rmtree.Remove(t.Context(), dir))
	require.NoDirExists(t, dir)
}

func TestEmptyKeepsOneName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree(t, dir, "a/b", "kept", "c", "d/kept")
	require.NoError(t, rmtree.Empty(t.Context(), dir, "kept"))
	require.Equal(t, []string{"kept"}, list(t, dir))
	require.NoError(t, rmtree.Empty(t.Context(), filepath.Join(dir, "gone"), ""))
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	outside, parent := t.TempDir(), t.TempDir()
	tree(t, outside, "file", "dir/file")
	tree(t, parent, "dir/sub/file")
	for name, to := range map[string]string{
		"to-dir": outside, "to-file": filepath.Join(outside, "file"), "to-nothing": "nowhere", "to-itself": "to-itself",
		"to-parent": "..", "sub/up": "../..", "sub/to-dir": filepath.Join(outside, "dir"),
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(parent, "dir", name)))
	}
	require.NoError(t, rmtree.Remove(t.Context(), filepath.Join(parent, "dir")))
	require.Empty(t, list(t, parent))
	require.Equal(t, []string{"dir", "file"}, list(t, outside))
	require.Equal(t, []string{"file"}, list(t, filepath.Join(outside, "dir")))
}

func TestWhatIsNoDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	tree(t, outside, "file")
	tree(t, dir, "file")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	for _, name := range []string{"file", "link"} {
		require.ErrorContains(t, rmtree.Remove(t.Context(), filepath.Join(dir, name)), "is no directory")
	}
	require.Equal(t, []string{"file", "link"}, list(t, dir))
	require.Equal(t, []string{"file"}, list(t, outside))
}

func TestContextEndsRemove(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	tree(t, dir, "a/b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, rmtree.Remove(ctx, dir), context.Canceled)
	require.DirExists(t, dir)
	require.NoError(t, rmtree.Remove(t.Context(), dir))
}
