package record

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir, Options{})
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, ErrLocked)
	require.EqualError(t, err, "open state directory "+dir+": directory is locked by process "+strconv.Itoa(os.Getpid())+
		" (this one); stop that process or choose another directory")
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "a second Close does nothing")
	d = open(t, dir, Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{}))
}

func TestOpenWhereAFileIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for what, dir := range map[string]string{"at its place": file, "above it": filepath.Join(file, "state")} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := Open(dir, Options{})
			require.ErrorContains(t, err, "make state directory "+dir+": ")
			require.ErrorContains(t, err, "choose a directory that this user may write")
		})
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{}))
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Put(t.Context(), "volumes", "a", volume{}), ErrClosed)
	require.ErrorIs(t, d.Delete(t.Context(), "volumes", "a"), ErrClosed)
	_, err := d.Load(t.Context(), "volumes", func(string, []byte) error { return nil })
	require.ErrorIs(t, err, ErrClosed)
}

// A caller may keep directories of its own in the store's.
func TestOpenLeavesOtherDirectoriesAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"devices", "stage/empty", "node/full/dir"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "node", "full", "record.jsonl"), nil, 0o600))
	d := open(t, root, Options{})
	_, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"devices", "lock", "node", "stage"}, names(t, root))
	require.Equal(t, []string{"empty"}, names(t, filepath.Join(root, "stage")))
	require.Equal(t, []string{"dir", "record.jsonl"}, names(t, filepath.Join(root, "node", "full")))
}

func TestOpenRemovesLeftovers(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		files map[string]string // in the record's directory
		want  []string          // what is there afterwards; nil if the directory is gone
	}{
		"a write that never came to its rename": {
			map[string]string{"record.json": sound, ".record.new": sound[:20], "image": ""}, []string{"image", "record.json"},
		},
		"the first write, killed":     {map[string]string{".record.new": sound[:20]}, nil},
		"a directory without a write": {map[string]string{}, nil},
		"a deletion at its start":     {map[string]string{".record.deleted": sound, "image": "", "dir/deep/file": ""}, nil},
		"a deletion at its end":       {map[string]string{".record.deleted": sound}, nil},
		"a deletion with an old file": {map[string]string{".record.deleted": sound, ".record.new": sound}, nil},
		"bytes that nobody explains":  {map[string]string{"image": "", ".record.new": ""}, nil}, // set aside
		"a new record over a deleted": {map[string]string{"record.json": sound, ".record.deleted": sound}, []string{".record.deleted", "record.json"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, "volumes", "bad")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			for name, content := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			for _, sync := range []bool{true, false} {
				d := open(t, root, Options{Sync: sync})
				_, err := d.Load(t.Context(), "volumes", func(string, []byte) error { return nil })
				require.NoError(t, err)
				require.NoError(t, d.Close())
				if c.want == nil {
					require.NoDirExists(t, dir)
				} else {
					require.Equal(t, c.want, names(t, dir))
				}
			}
		})
	}
}

// names lists a directory.
func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestNothingIsLeftAfterDelete(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		d := open(t, t.TempDir(), Options{Sync: sync})
		for range 3 {
			require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{}))
		}
		require.NoError(t, d.Delete(t.Context(), "volumes", "a"))
		require.Empty(t, names(t, filepath.Join(d.dir, "volumes")))
	}
}
