package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestEveryBackendOpensInADirectoryThatItMakes(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != Memory {
				testenv.Need(t, kernel.Root, kernel.Loop)
			}
			dir := filepath.Join(t.TempDir(), "a", "b")
			b, err := New(t.Context(), name, Options{Dir: dir})
			require.NoError(t, err)
			require.Equal(t, name, b.Name())
			require.NoError(t, b.Close())
			info, err := os.Stat(dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		})
	}
}

func TestOnlyMemoryDoesWithoutADirectory(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		err := Check(name, "")
		if name == Memory {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "give --state-dir DIR")
	}
	require.ErrorContains(t, Check("floppy", "/x"), `no backend "floppy" here`)
}

func TestDirectoryBehindAFileIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, name := range Names() {
		for _, dir := range []string{file, filepath.Join(file, "below")} {
			_, err := New(t.Context(), name, Options{Dir: dir})
			require.ErrorContains(t, err, "make state directory: ")
		}
	}
	require.True(t, slices.Contains(Names(), Memory))
}
