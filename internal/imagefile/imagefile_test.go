//go:build linux

package imagefile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/imagefile"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMakeShowsAnImageOnlyWhenItIsWhole(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, imagefile.UnfinishedName), []byte("left by a killed process, and longer"), 0o600))
		err := imagefile.Make(t.Context(), dir, sync, func(f *os.File) error {
			require.NoFileExists(t, imagefile.Path(dir))
			_, err := f.WriteString("bytes")
			return err
		})
		require.NoError(t, err)
		require.NoFileExists(t, filepath.Join(dir, imagefile.UnfinishedName))
		data, err := os.ReadFile(imagefile.Path(dir))
		require.NoError(t, err)
		require.Equal(t, "bytes", string(data))
	}
}

func TestMakeThatFailsLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(imagefile.Path(dir), []byte("old"), 0o600))
	failure := errors.New("failure")
	require.ErrorIs(t, imagefile.Make(t.Context(), dir, false, func(*os.File) error { return failure }), failure)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, imagefile.Make(ctx, dir, false, func(*os.File) error { return nil }), context.Canceled)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	data, err := os.ReadFile(imagefile.Path(dir))
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := imagefile.Open(dir, true)
	require.ErrorIs(t, err, backends.ErrDataLoss)
	require.NoError(t, os.Symlink("/etc/hostname", imagefile.Path(dir)))
	_, err = imagefile.Open(dir, true)
	require.Error(t, err, "a link is not followed")
	require.NoError(t, imagefile.Remove(dir))
	require.NoError(t, imagefile.Remove(dir), "a repeated call")

	require.NoError(t, os.WriteFile(imagefile.Path(dir), nil, 0o600))
	f, err := imagefile.Open(dir, true)
	require.NoError(t, err)
	_, err = f.WriteString("x")
	require.Error(t, err)
	require.NoError(t, f.Close())
}

func TestExtendNeverShrinks(t *testing.T) {
	t.Parallel()
	for _, thick := range []bool{false, true} {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		require.NoError(t, err)
		defer f.Close()
		for _, size := range []int64{8192, 4096, 16384} {
			require.NoError(t, imagefile.Extend(t.Context(), f, size, thick))
			info, err := f.Stat()
			require.NoError(t, err)
			require.Equal(t, max(size, 8192), info.Size())
		}
	}
}

func TestExtendPastWhatAFileCanHave(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	require.NoError(t, err)
	defer f.Close()
	err = imagefile.Extend(t.Context(), f, 1<<62, false)
	if err != nil { // some file systems take it
		require.ErrorIs(t, err, backends.ErrOutOfRange)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	open, err := imagefile.IdentityOf(f)
	require.NoError(t, err)
	at, err := imagefile.IdentityAt(path)
	require.NoError(t, err)
	require.Equal(t, open, at)

	require.NoError(t, os.Remove(path))
	_, err = imagefile.IdentityAt(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	at, err = imagefile.IdentityAt(path)
	require.NoError(t, err)
	require.NotEqual(t, open, at, "another file at the same path")
}
