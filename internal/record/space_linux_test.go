package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprintf("sync=%t", sync), func(t *testing.T) {
			t.Parallel()
			dir := testenv.SmallTmpfsDir(t, 1<<20)
			d := open(t, dir, Options{Sync: sync})
			require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{Name: "kept"}))
			filler := filepath.Join(dir, "filler")
			require.ErrorIs(t, os.WriteFile(filler, make([]byte, 2<<20), 0o600), unix.ENOSPC)

			long := volume{Name: string(bytes.Repeat([]byte("x"), 100_000))}
			for _, id := range []string{"a", "b"} {
				err := d.Put(t.Context(), "volumes", id, long)
				require.ErrorIs(t, err, backends.ErrExhausted)
				require.ErrorIs(t, err, unix.ENOSPC)
				require.ErrorContains(t, err, "write record volumes/"+id+" in "+dir)
				require.ErrorContains(t, err, "free space there")
			}
			require.Equal(t, map[string]volume{"a": {Name: "kept"}}, load(t, d, "volumes"))
			require.Equal(t, []string{"a"}, names(t, filepath.Join(dir, "volumes")), "nothing is left of b")
			require.Equal(t, []string{"record.json"}, names(t, d.Path("volumes", "a")))

			require.NoError(t, d.Close())
			d = open(t, dir, Options{Sync: sync}) // a full store can be opened
			require.NoError(t, d.Delete(t.Context(), "volumes", "a"), "and emptied")
			require.NoError(t, os.Remove(filler))
			require.NoError(t, d.Put(t.Context(), "volumes", "b", long))
			require.Equal(t, map[string]volume{"b": long}, load(t, d, "volumes"))
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := testenv.TmpfsDir(t)
	d := open(t, filepath.Join(dir, "made"), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{Size: 1}))
	require.NoError(t, d.Close())
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))

	_, err := Open(filepath.Join(dir, "new"), Options{})
	require.ErrorIs(t, err, unix.EROFS)
	require.ErrorContains(t, err, "make state directory "+filepath.Join(dir, "new"))
	_, err = Open(filepath.Join(dir, "made"), Options{})
	require.ErrorIs(t, err, unix.EROFS)
	require.ErrorContains(t, err, "lock state directory "+filepath.Join(dir, "made"))
	require.ErrorContains(t, err, "that this user may write")
}

func TestDirectoryThatBecomesReadOnly(t *testing.T) {
	t.Parallel()
	dir := testenv.TmpfsDir(t)
	d := open(t, dir, Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{Size: 1}))
	// The lock, open for writing, forbids the remount of the file system; a
	// second mount of it can be read-only.
	require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)) }()
	require.NoError(t, unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))

	err := d.Put(t.Context(), "volumes", "a", volume{Size: 2})
	require.ErrorIs(t, err, unix.EROFS)
	require.ErrorContains(t, err, "write record volumes/a in "+dir)
	require.ErrorIs(t, d.Delete(t.Context(), "volumes", "a"), unix.EROFS)
	require.Equal(t, map[string]volume{"a": {Size: 1}}, load(t, d, "volumes"))
}

func TestDeleteEntersNoMount(t *testing.T) {
	t.Parallel()
	d := open(t, testenv.TmpfsDir(t), Options{})
	filled(t, d, "a", 5)
	point := filepath.Join(d.Path("volumes", "a"), "mnt")
	require.NoError(t, os.Mkdir(point, 0o700))
	require.NoError(t, unix.Mount(testenv.TmpfsDir(t), point, "", unix.MS_BIND, ""))
	mounted := true
	unmount := func() {
		if mounted {
			require.NoError(t, unix.Unmount(point, 0))
			mounted = false
		}
	}
	defer unmount()
	kept := filepath.Join(point, "dir", "file")
	require.NoError(t, os.Mkdir(filepath.Dir(kept), 0o700))
	require.NoError(t, os.WriteFile(kept, nil, 0o600))

	err := d.Delete(t.Context(), "volumes", "a")
	require.ErrorIs(t, err, unix.EBUSY)
	require.ErrorContains(t, err, point)
	require.FileExists(t, kept)
	require.NoError(t, d.Close())
	d = open(t, d.dir, Options{}) // which may not fail for that
	require.FileExists(t, kept)
	damaged, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, ErrOrphan)
	require.Empty(t, damaged[0].MovedTo)

	unmount()
	require.NoError(t, d.Delete(t.Context(), "volumes", "a"))
	require.NoDirExists(t, d.Path("volumes", "a"))
}

func TestPipeInPlaceOfARecord(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, os.MkdirAll(d.Path("volumes", "bad"), 0o700))
	require.NoError(t, unix.Mkfifo(filepath.Join(d.Path("volumes", "bad"), "record.json"), 0o600))
	damaged, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, ErrDamaged)
}

func TestRecordThatIsALink(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "bad", volume{}))
	name := filepath.Join(d.Path("volumes", "bad"), "record.json")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.Rename(name, elsewhere))
	require.NoError(t, os.Symlink(elsewhere, name))
	damaged, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, ErrDamaged)
	require.FileExists(t, elsewhere)
}
