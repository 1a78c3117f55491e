package record

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// filled puts a record with many files beside it, in a tree.
func filled(t *testing.T, d *Dir, id string, files int) {
	t.Helper()
	require.NoError(t, d.Put(t.Context(), "volumes", id, volume{}))
	for i := range files {
		dir := d.Path("volumes", id)
		if i%3 > 0 {
			dir = filepath.Join(dir, fmt.Sprint("dir-", i%3), "deep")
		}
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file-", i)), nil, 0o400))
	}
}

func TestDeleteABigDirectory(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	filled(t, d, "a", 1100)
	filled(t, d, "b", 3)
	require.NoError(t, d.Delete(t.Context(), "volumes", "a"))
	require.Equal(t, []string{"b"}, names(t, filepath.Join(d.dir, "volumes")))
}

func TestDeleteFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	kept := filepath.Join(outside, "file")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{}))
	for name, to := range map[string]string{"to-dir": outside, "to-file": kept, "to-nothing": "nowhere", "to-itself": "."} {
		require.NoError(t, os.Symlink(to, filepath.Join(d.Path("volumes", "a"), name)))
	}
	require.NoError(t, d.Delete(t.Context(), "volumes", "a"))
	require.FileExists(t, kept)
	require.NoDirExists(t, d.Path("volumes", "a"))
}

// stopped is a context that ends after it was asked a number of times, which is
// a deletion that ends halfway.
type stopped struct {
	context.Context
	left int
}

func (c *stopped) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestDeleteThatStopsHalfway(t *testing.T) {
	t.Parallel()
	const files = 40
	finish := map[string]func(t *testing.T, d *Dir){
		"and is called again":       func(t *testing.T, d *Dir) { require.NoError(t, d.Delete(t.Context(), "volumes", "a")) },
		"and is ended by next Open": func(t *testing.T, d *Dir) { require.NoError(t, d.Close()); open(t, d.dir, Options{}) },
	}
	for what, finish := range finish {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for left := 1; left < files; left += 5 {
				d := open(t, t.TempDir(), Options{})
				filled(t, d, "a", files)
				err := d.Delete(&stopped{t.Context(), left}, "volumes", "a")
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "delete record volumes/a")
				require.DirExists(t, d.Path("volumes", "a"))

				damaged, err := d.Load(t.Context(), "volumes", func(string, []byte) error {
					t.Error("a deleted record came back")
					return nil
				})
				require.NoError(t, err)
				require.Len(t, damaged, 1)
				require.ErrorIs(t, damaged[0].Err, ErrOrphan)
				require.Empty(t, damaged[0].MovedTo)

				finish(t, d)
				require.NoDirExists(t, d.Path("volumes", "a"))
			}
		})
	}
}
