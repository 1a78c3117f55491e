//go:build linux

package filesystem_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// countRuns puts a program of that name before the real one, which notes each
// run and, while the pipe "hold" exists, ends only when it is interrupted or nobody
// has the pipe open for writing any more. It returns its directory.
func countRuns(t *testing.T, name string) string {
	t.Helper()
	realPath, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho run >> %[1]s/runs\n"+
		"if [ -e %[1]s/hold ]; then trap 'exit 9' INT; echo held > %[1]s/held; read line < %[1]s/hold; exit 9; fi\n"+
		"exec %[2]s \"$@\"\n", dir, realPath)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func runs(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "runs"))
	require.NoError(t, err)
	return strings.Count(string(data), "run\n")
}

func TestMkfsRunsOnceAShape(t *testing.T) {
	for fs, size := range types {
		t.Run(string(fs), func(t *testing.T) {
			needType(t, fs)
			shortOnly(t, fs, filesystem.Ext4)
			dir := countRuns(t, "mkfs."+string(fs))
			maker := filesystem.NewMaker(filesystem.Options{})
			var group sync.WaitGroup
			ids := make([]string, 16)
			for i := range ids {
				path := newImage(t, size)
				group.Go(func() {
					var err error
					ids[i], err = maker.Format(t.Context(), path, fs, size, false)
					require.NoError(t, err)
				})
			}
			group.Wait()
			first := runs(t, dir) // more than one where mkfs is too old for some option
			require.LessOrEqual(t, first, 3)
			unique := map[string]bool{}
			for _, id := range ids {
				unique[id] = true
			}
			require.Len(t, unique, len(ids))

			_, err := maker.Format(t.Context(), newImage(t, size), fs, size, false)
			require.NoError(t, err)
			require.Equal(t, first, runs(t, dir), "the shape is known")
			_, err = maker.Format(t.Context(), newImage(t, size+mebibyte), fs, size+mebibyte, false)
			require.NoError(t, err)
			require.Greater(t, runs(t, dir), first, "this shape is not")
		})
	}
}

// Whoever waits for another's mkfs is not bound to the other's patience.
func TestWaitersOutliveTheCallerWhoseMkfsItIs(t *testing.T) {
	const size = 16 * mebibyte
	needType(t, filesystem.Ext4)
	dir := countRuns(t, "mkfs.ext4")
	hold := filepath.Join(dir, "hold")
	for _, pipe := range []string{hold, filepath.Join(dir, "held")} {
		require.NoError(t, unix.Mkfifo(pipe, 0o600))
	}
	// While this is open the program waits; if the test is killed, it ends.
	writer, err := os.OpenFile(hold, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	maker := filesystem.NewMaker(filesystem.Options{})

	first, cancel := context.WithCancel(t.Context())
	failed, succeeded := make(chan error, 1), make(chan error, 3)
	path := newImage(t, size)
	go func() {
		_, err := maker.Format(first, path, filesystem.Ext4, size, false)
		failed <- err
	}()
	held, err := os.ReadFile(filepath.Join(dir, "held")) // mkfs of the first is under way
	require.NoError(t, err)
	require.Equal(t, "held\n", string(held))
	for range cap(succeeded) {
		path := newImage(t, size)
		go func() {
			_, err := maker.Format(t.Context(), path, filesystem.Ext4, size, false)
			succeeded <- err
		}()
	}
	impatient, stop := context.WithCancel(t.Context())
	stop()
	_, err = maker.Format(impatient, newImage(t, size), filesystem.Ext4, size, false)
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, os.Remove(hold))
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.True(t, probe(t, path).Blank())
	for range cap(succeeded) {
		require.NoError(t, <-succeeded)
	}
	require.Equal(t, 2, runs(t, dir))
}

func TestMissingToolsAreNamed(t *testing.T) {
	image := newFilesystem(t, filesystem.NewMaker(filesystem.Options{}), filesystem.Ext4, 16*mebibyte)
	dirty := crashed(t)
	t.Setenv("PATH", t.TempDir())
	missing := func(err error, feature kernel.Feature, name, pkg string) {
		t.Helper()
		var notSupported *kernel.NotSupportedError
		require.ErrorAs(t, err, &notSupported)
		require.ErrorIs(t, err, kernel.ErrNotSupported)
		require.Equal(t, feature, notSupported.Feature)
		require.Contains(t, notSupported.Reason, name)
		require.Contains(t, notSupported.Remedy, pkg)
	}
	for fs, names := range map[filesystem.Type][3]string{
		filesystem.Ext4: {"ext4", "mkfs.ext4", "e2fsprogs"}, filesystem.XFS: {"xfs", "mkfs.xfs", "xfsprogs"},
		filesystem.Btrfs: {"btrfs", "mkfs.btrfs", "btrfs-progs"},
	} {
		path := newImage(t, types[fs])
		_, err := filesystem.NewMaker(filesystem.Options{}).Format(t.Context(), path, fs, types[fs], false)
		missing(err, kernel.Feature(names[0]), names[1], names[2])
		require.True(t, probe(t, path).Blank(), "nothing was begun")
	}
	missing(filesystem.Check(t.Context(), dirty, filesystem.Ext4), kernel.Ext4, "e2fsck", "e2fsprogs")
	require.NoError(t, os.Truncate(image, 64*mebibyte))
	missing(filesystem.GrowOffline(t.Context(), image, filesystem.Ext4), kernel.Ext4, "resize2fs", "e2fsprogs")
	require.NoError(t, filesystem.Check(t.Context(), image, filesystem.Ext4), "a clean one needs no tool")
}

// Neither the user's settings nor those of the machine decide what a volume
// looks like.
func TestMkfsIgnoresSettings(t *testing.T) {
	const size = 64 * mebibyte
	needType(t, filesystem.Ext4)
	layout := func() []int64 {
		ranges, err := filesystem.NewMaker(filesystem.Options{}).Ranges(t.Context(), filesystem.Ext4, size, 512)
		require.NoError(t, err)
		var offsets []int64
		for _, r := range ranges {
			offsets = append(offsets, r.Offset, int64(len(r.Data)))
		}
		return offsets
	}
	want := layout()
	config := filepath.Join(t.TempDir(), "mke2fs.conf")
	require.NoError(t, os.WriteFile(config, []byte("[defaults]\n\tbase_features = sparse_super\n\tblocksize = 4096\n"+
		"\tinode_size = 128\n\treserved_ratio = 20\n\tlazy_itable_init = 0\n\tflex_bg_size = 2\n\tlog_flex_bg_size = 1\n"+
		"[fs_types]\n\text4 = {\n\t\tfeatures = bigalloc,quota\n\t\tcluster_size = 65536\n\t}\n\tsmall = {\n\t\tinode_ratio = 65536\n\t}\n"), 0o600))
	for name, value := range map[string]string{
		"MKE2FS_CONFIG": config, "MKE2FS_DEVICE_SECTSIZE": "4096", "MKE2FS_DEVICE_PHYS_SECTSIZE": "4096",
		"MKE2FS_FIRST_META_BG": "1", "LC_ALL": "de_DE.UTF-8",
	} {
		t.Setenv(name, value)
	}
	require.Equal(t, want, layout())
}

func TestTemplatesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const bound = 700 * kibibyte
	needType(t, filesystem.Ext4)
	maker := filesystem.NewMaker(filesystem.Options{MaxBytes: bound})
	for i := range int64(6) {
		_, err := maker.Ranges(t.Context(), filesystem.Ext4, (64+i)*mebibyte, 512)
		require.NoError(t, err)
		count, bytes := maker.Kept()
		require.LessOrEqual(t, bytes, int64(bound))
		require.Equal(t, min(int(i)+1, 2), count)
	}
	small := filesystem.NewMaker(filesystem.Options{MaxBytes: 1})
	path := newFilesystem(t, small, filesystem.Ext4, 16*mebibyte)
	count, bytes := small.Kept()
	require.Zero(t, count)
	require.Zero(t, bytes)
	require.NoError(t, check(t, path, filesystem.Ext4), "what is not kept still works")
}

// The least recently used template is the one that goes.
func TestTemplatesInUseAreKept(t *testing.T) {
	dir := countRuns(t, "mkfs.ext4")
	maker := filesystem.NewMaker(filesystem.Options{MaxBytes: 700 * kibibyte})
	for _, size := range []int64{64, 65, 64, 66, 64, 65, 64} { // in MiB; two fit
		_, err := maker.Ranges(t.Context(), filesystem.Ext4, size*mebibyte, 512)
		require.NoError(t, err)
	}
	require.Equal(t, 4, runs(t, dir), "64, 65, 66 and again 65")
}

// A directory on any file system will do, and nothing is ever to be seen in it.
func TestTempDirStaysEmpty(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Tmpfs)
	dirs := map[string]string{"a disk": t.TempDir(), "memory": ""}
	dirs["tmpfs"], _ = newStore(t, 1<<15, mebibyte)
	for name, dir := range dirs {
		for fs, size := range types {
			if testing.Short() && fs != filesystem.Ext4 {
				continue
			}
			path := newFilesystem(t, filesystem.NewMaker(filesystem.Options{TempDir: dir}), fs, size)
			require.NoError(t, check(t, path, fs), name)
		}
		if dir != "" {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, entry := range entries {
				require.Contains(t, []string{"image", "other"}, entry.Name(), "what this test made")
			}
		}
	}
	_, err := filesystem.NewMaker(filesystem.Options{TempDir: "/nowhere"}).Format(t.Context(), newImage(t, 16*mebibyte), filesystem.Ext4, 16*mebibyte, false)
	require.ErrorIs(t, err, os.ErrNotExist)
}
