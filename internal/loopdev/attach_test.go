//go:build linux

package loopdev_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestAttachedDeviceIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	for name, config := range map[string]loopdev.Config{
		"plain":                    {},
		"read-only":                {ReadOnly: true},
		"autoclear":                {Autoclear: true},
		"direct I/O":               {DirectIO: true},
		"all at once":              {ReadOnly: true, Autoclear: true, DirectIO: true},
		"a name of maximum length": {Name: strings.Repeat("n", 63)},
	} {
		for where, dir := range map[string]func(testing.TB) string{
			"on disk":  func(tb testing.TB) string { return tb.TempDir() },
			"on tmpfs": func(tb testing.TB) string { return testenv.TmpfsDir(tb) },
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				dir := dir(t)
				if config.DirectIO && kernel.DirectIO(dir) != nil {
					t.Skip(kernel.DirectIO(dir))
				}
				backing := newBacking(t, dir)
				config, unique := config, uniqueName()
				config.Name = unique + config.Name[min(len(config.Name), len(unique)):]
				d := attach(t, pool, backing, config)

				var stat unix.Stat_t
				require.NoError(t, unix.Fstat(int(backing.Fd()), &stat))
				status, err := d.Status()
				require.NoError(t, err)
				require.Equal(t, loopdev.Status{
					Index: d.Index, Name: config.Name, BackingDev: stat.Dev, BackingInode: stat.Ino,
					ReadOnly: config.ReadOnly, Autoclear: config.Autoclear, DirectIO: config.DirectIO,
				}, status)

				size, err := d.Size()
				require.NoError(t, err)
				require.EqualValues(t, mebibyte, size)

				var node unix.Stat_t
				require.NoError(t, unix.Stat(d.Path(), &node))
				require.Equal(t, unix.Mkdev(d.Major(), d.Minor()), node.Rdev)
			})
		}
	}
}

func TestBytesGoThroughToTheBackingFile(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	d := attach(t, pool, backing, loopdev.Config{})

	want := bytes.Repeat([]byte("csiemu.."), 512)
	device := openDevice(t, d, os.O_RDWR)
	_, err := device.WriteAt(want, 8192)
	require.NoError(t, err)
	require.NoError(t, d.Flush())
	got := make([]byte, len(want))
	_, err = backing.ReadAt(got, 8192)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, device.Close())
}

func TestReadOnlyDeviceRefusesWrites(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	readOnlyFile, err := os.Open(backing.Name())
	require.NoError(t, err)
	defer readOnlyFile.Close()

	for name, file := range map[string]*os.File{"file open for reading": readOnlyFile, "file open for writing": backing} {
		t.Run(name, func(t *testing.T) {
			d := attach(t, pool, file, loopdev.Config{ReadOnly: true})
			device := openDevice(t, d, os.O_RDWR)
			_, err := device.WriteAt(make([]byte, 512), 0)
			require.ErrorIs(t, err, unix.EPERM)
			require.NoError(t, device.Close())
			detach(t, pool, d)
		})
	}

	// The next writable device of the pool takes the same index.
	d := attach(t, pool, backing, loopdev.Config{})
	device := openDevice(t, d, os.O_RDWR)
	_, err = device.WriteAt(make([]byte, 512), 0)
	require.NoError(t, err)
	require.NoError(t, device.Close())
}

func TestReadOnlyMarkOfAnEarlierUserIsLifted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	for range 100 {
		first := attach(t, pool, backing, loopdev.Config{})
		marked := openDevice(t, first, os.O_RDONLY)
		require.NoError(t, unix.IoctlSetPointerInt(int(marked.Fd()), unix.BLKROSET, 1))
		require.NoError(t, marked.Close())
		detach(t, pool, first)

		second := attach(t, pool, backing, loopdev.Config{})
		device := openDevice(t, second, os.O_RDWR)
		_, err := device.WriteAt(make([]byte, 512), 0)
		require.NoError(t, err)
		require.NoError(t, device.Close())
		detach(t, pool, second)
		if second.Index == first.Index {
			return
		}
		// Another program took the index: the mark was not met.
	}
	t.Fatal("no index was used again")
}

func TestAttachRefuses(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, t.TempDir())
	readOnlyFile, err := os.Open(backing.Name())
	require.NoError(t, err)
	defer readOnlyFile.Close()
	directory, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer directory.Close()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()

	for name, test := range map[string]struct {
		ctx     context.Context
		backing *os.File
		config  loopdev.Config
		want    string
	}{
		"no name":                             {context.Background(), backing, loopdev.Config{}, "no name"},
		"a name that the kernel would cut":    {context.Background(), backing, loopdev.Config{Name: strings.Repeat("n", 64)}, "longer than 63"},
		"a name with NUL":                     {context.Background(), backing, loopdev.Config{Name: "a\x00b"}, "NUL"},
		"a writable device of read-only file": {context.Background(), readOnlyFile, loopdev.Config{Name: uniqueName()}, "writable"},
		"a directory":                         {context.Background(), directory, loopdev.Config{Name: uniqueName(), ReadOnly: true}, "LOOP_CONFIGURE"},
		"a context that is done":              {cancelled, backing, loopdev.Config{Name: uniqueName()}, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pool.Attach(test.ctx, test.backing, test.config)
			require.ErrorContains(t, err, test.want)
			if test.config.Name != "" {
				_, err = loopdev.Find(context.Background(), test.config.Name, -1, loopdev.Options{})
				require.ErrorIs(t, err, loopdev.ErrNotBound, "something was left bound")
			}
		})
	}
}

// ramfs has no direct I/O, and the kernel would use the page cache silently.
func TestMissingDirectIOIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	dir := t.TempDir()
	require.NoError(t, unix.Mount("ramfs", dir, "ramfs", 0, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.Error(t, kernel.DirectIO(dir))
	backing := newBacking(t, dir)
	name := uniqueName()

	_, err := pool.Attach(context.Background(), backing, loopdev.Config{Name: name, DirectIO: true})
	var unsupported *kernel.NotSupportedError
	require.ErrorAs(t, err, &unsupported)
	require.Equal(t, kernel.DirectIOFeature, unsupported.Feature)
	require.ErrorContains(t, err, backing.Name())
	_, err = loopdev.Find(context.Background(), name, -1, loopdev.Options{})
	require.ErrorIs(t, err, loopdev.ErrNotBound)

	attach(t, pool, backing, loopdev.Config{Name: name})
}

func TestDirectIODeviceBypassesThePageCache(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	dir := t.TempDir()
	if err := kernel.DirectIO(dir); err != nil {
		t.Skip(err)
	}
	backing := newBacking(t, dir)
	d := attach(t, pool, backing, loopdev.Config{DirectIO: true})
	device := openDevice(t, d, os.O_RDWR)
	sector, err := unix.IoctlGetInt(int(device.Fd()), unix.BLKSSZGET)
	require.NoError(t, err)
	var stat unix.Statx_t
	require.NoError(t, unix.Statx(int(backing.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stat))
	if stat.Mask&unix.STATX_DIOALIGN != 0 {
		require.GreaterOrEqual(t, sector, int(stat.Dio_offset_align), "sectors are smaller than direct I/O allows")
	}
	_, err = device.WriteAt(bytes.Repeat([]byte{7}, 4096), 0)
	require.NoError(t, err)
	require.NoError(t, device.Sync())
	require.NoError(t, device.Close())
}

func TestDetachedIndexIsUsedAgain(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	backing := newBacking(t, testenv.TmpfsDir(t))
	seen := map[int]bool{}
	for i := range 50 {
		d := attach(t, pool, backing, loopdev.Config{Name: fmt.Sprintf("%s-%d", uniqueName(), i)})
		seen[d.Index] = true
		detach(t, pool, d)
	}
	// More than one is possible: another program may take a free index.
	require.Less(t, len(seen), 15, "devices pile up: %v", seen)
}
