package dirwatch_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/role/dirwatch"
)

// soon bounds waits for what happens at once on a machine that is not busy.
const soon = 30 * time.Second

// next waits for a change and reports whether the watch goes on.
func next(t *testing.T, changed <-chan struct{}) bool {
	t.Helper()
	select {
	case _, open := <-changed:
		return open
	case <-time.After(soon):
		require.Fail(t, "nothing is told")
		return false
	}
}

func TestEntriesThatComeAndGoAreTold(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	at, away := filepath.Join(dir, "a"), filepath.Join(outside, "a")
	changed, err := dirwatch.Watch(t.Context(), dir)
	require.NoError(t, err)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"made", func() error { return os.WriteFile(at, nil, 0o600) }},
		{"moved away", func() error { return os.Rename(at, away) }},
		{"moved here", func() error { return os.Rename(away, at) }},
		{"renamed", func() error { return os.Rename(at, at+"2") }},
		{"removed", func() error { return os.Remove(at + "2") }},
		{"a directory", func() error { return os.Mkdir(at, 0o700) }},
		{"a link", func() error { return os.Symlink("x", filepath.Join(dir, "l")) }},
	} {
		require.NoError(t, step.do(), step.name)
		require.True(t, next(t, changed), step.name)
		for quiet := false; !quiet; { // a rename may be told as two
			select {
			case <-changed:
			default:
				quiet = true
			}
		}
	}
}

// Nobody need take each value: what came meanwhile is one more.
func TestManyChangesAreOneValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	changed, err := dirwatch.Watch(t.Context(), dir)
	require.NoError(t, err)
	for range 10_000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
		require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	}
	require.True(t, next(t, changed))
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	changed, err := dirwatch.Watch(ctx, t.TempDir())
	require.NoError(t, err)
	cancel()
	require.False(t, next(t, changed))
}

func TestAWatchEndsWithItsDirectory(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(dir string) error{
		"removed": os.Remove,
		"moved":   func(dir string) error { return os.Rename(dir, dir+"2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "d")
			require.NoError(t, os.Mkdir(dir, 0o700))
			changed, err := dirwatch.Watch(t.Context(), dir)
			require.NoError(t, err)
			require.NoError(t, end(dir))
			require.True(t, next(t, changed), "that it changed is told first")
			require.False(t, next(t, changed))
			require.NoError(t, os.Mkdir(dir, 0o700))
			again, err := dirwatch.Watch(t.Context(), dir)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
			require.True(t, next(t, again), "the one that came in its place")
		})
	}
}

func TestWhatCannotBeWatchedIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		path string
		err  error
	}{
		"nothing": {file + "x", fs.ErrNotExist},
		"a file":  {file, syscall.ENOTDIR},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := dirwatch.Watch(t.Context(), test.path)
			require.ErrorIs(t, err, test.err)
			require.ErrorContains(t, err, "watch directory "+test.path)
		})
	}
}
