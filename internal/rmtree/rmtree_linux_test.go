package rmtree_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/rmtree"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMountsAreNotEntered(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Tmpfs)
	for _, point := range []string{"", "mnt", "a/b/mnt"} {
		t.Run("mounted at "+point, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(testenv.TmpfsDir(t), "dir")
			at := filepath.Join(dir, point)
			tree(t, dir, point+"/", "file", "a/file")
			// A bind mount of the same file system has the same device number.
			source := filepath.Join(filepath.Dir(dir), "source")
			tree(t, source, "kept/file")
			require.NoError(t, unix.Mount(source, at, "", unix.MS_BIND, ""))
			defer func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) }()

			err := rmtree.Remove(t.Context(), dir)
			require.ErrorIs(t, err, unix.EBUSY)
			require.ErrorContains(t, err, "remove "+at)
			_, err = os.Stat(filepath.Join(source, "kept", "file"))
			require.NoError(t, err)
		})
	}
}
