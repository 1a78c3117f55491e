//go:build linux

package filesystem_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// Two volumes of one template are two file systems for the kernel, which mounts
// both at once without any option, and whole ones for the tools.
func TestFormatMakesFilesystemsOfTheirOwn(t *testing.T) {
	t.Parallel()
	sizes := map[filesystem.Type][]int64{
		filesystem.Ext4:  {2 * mebibyte, 16 * mebibyte, 64 * mebibyte, gibibyte, 10 * gibibyte},
		filesystem.XFS:   {300 * mebibyte, gibibyte, 10 * gibibyte},
		filesystem.Btrfs: {256 * mebibyte, 257 * mebibyte, gibibyte, 10 * gibibyte},
	}
	for fs, all := range sizes {
		for _, size := range all {
			t.Run(fmt.Sprintf("%s of %d MiB", fs, size/mebibyte), func(t *testing.T) {
				t.Parallel()
				needType(t, fs)
				if size > gibibyte && testing.Short() {
					t.Skip("-short")
				}
				maker := filesystem.NewMaker(filesystem.Options{TempDir: t.TempDir()})
				var mounts []*mounted
				var devices []string
				ids := map[string]bool{}
				for range 2 {
					device := attach(t, newImage(t, size), loopdev.Config{}).Path()
					devices = append(devices, device)
					id, err := maker.Format(t.Context(), device, fs, size, false)
					require.NoError(t, err)
					ids[id] = true

					content := probe(t, device)
					require.Equal(t, string(fs), content.Type)
					require.Equal(t, id, content.UUID)
					require.True(t, content.Fills(size), "%+v", content)
					require.LessOrEqual(t, content.SizeBytes, size)
					require.Equal(t, fs != filesystem.XFS, content.Clean)
					require.NoError(t, check(t, device, fs))
				}
				require.Len(t, ids, 2)
				count, _ := maker.Kept()
				require.Equal(t, 1, count)

				for _, device := range devices {
					mounts = append(mounts, mount(t, device, fs))
				}
				if size > 4*mebibyte {
					for _, m := range mounts {
						m.fill(t)
					}
				}
				for _, m := range mounts {
					m.unmount(t)
				}
				for _, device := range devices {
					require.NoError(t, check(t, device, fs))
					require.Equal(t, fs != filesystem.XFS, probe(t, device).Clean)
				}
			})
		}
	}
}

// A store on a disk with sectors of 4 KiB gives such devices, which refuse a
// file system of smaller blocks.
func TestFormatFollowsTheSectorsOfTheDevice(t *testing.T) {
	t.Parallel()
	for fs, size := range types {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needType(t, fs)
			device := attach(t, newImage(t, size), loopdev.Config{}).Path()
			setSectorSize(t, device, 4096)
			_, err := shared().Format(t.Context(), device, fs, size, false)
			require.NoError(t, err)
			m := mount(t, device, fs)
			m.fill(t)
			m.unmount(t)
			require.NoError(t, check(t, device, fs))
		})
	}
}

func setSectorSize(t *testing.T, device string, size int) {
	t.Helper()
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.IoctlSetInt(int(file.Fd()), unix.LOOP_SET_BLOCK_SIZE, size))
}

func TestFormatWithSync(t *testing.T) {
	t.Parallel()
	for fs, size := range types {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needType(t, fs)
			image := newImage(t, size)
			device := attach(t, image, loopdev.Config{}).Path()
			id, err := shared().Format(t.Context(), device, fs, size, true)
			require.NoError(t, err)
			require.Equal(t, id, probe(t, image).UUID, "the image has what the device was given")
			require.NoError(t, check(t, image, fs))
		})
	}
}

// Odd sizes are those where mkfs leaves a rest of the device unused.
func TestFormatFillsDevicesOfOddSizes(t *testing.T) {
	t.Parallel()
	maker := shared()
	for fs, size := range types {
		odd := []int64{4 * kibibyte, 641*mebibyte + 8*kibibyte, 100 * kibibyte, mebibyte + 4*kibibyte, 500 * mebibyte}
		if testing.Short() {
			odd = odd[:2]
		}
		for _, more := range odd {
			t.Run(fmt.Sprintf("%s and %d KiB", fs, more/kibibyte), func(t *testing.T) {
				t.Parallel()
				image := newFilesystem(t, maker, fs, size+more)
				content := probe(t, image)
				require.True(t, content.Fills(size+more), "%+v", content)
				require.False(t, content.Fills(2*size+2*more))
				require.NoError(t, check(t, image, fs))
			})
		}
	}
}

// Format is never the end of what someone put there.
func TestFormatRefusesWhatIsNotBlank(t *testing.T) {
	t.Parallel()
	const size = 16 * mebibyte
	maker := shared()
	write := func(offset int64, data string) func(*testing.T, string) {
		return func(t *testing.T, path string) { patch(t, path, offset, []byte(data)) }
	}
	cases := map[string]func(*testing.T, string){
		"one byte at the start":            write(0, "x"),
		"one byte at the end of the head":  write(256*kibibyte-1, "x"),
		"one byte at the start of a tail":  write(size-64*kibibyte, "x"),
		"the last byte":                    write(size-1, "x"),
		"a partition table":                write(510, "\x55\xaa"),
		"a text that begins like the mark": write(0, "csiemu half format\nof a book"),
		"a mark behind the first sector":   write(512, "csiemu half format\n"),
		"an ext4 of its own": func(t *testing.T, path string) {
			_, err := maker.Format(t.Context(), path, filesystem.Ext4, size, false)
			require.NoError(t, err)
		},
		"an ext4 whose superblock is gone": func(t *testing.T, path string) {
			_, err := maker.Format(t.Context(), path, filesystem.Ext4, size, false)
			require.NoError(t, err)
			patch(t, path, 1024, make([]byte, 1024))
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needType(t, filesystem.Ext4)
			path := newImage(t, size)
			prepare(t, path)
			before, err := os.ReadFile(path)
			require.NoError(t, err)

			for range 2 {
				_, err = maker.Format(t.Context(), path, filesystem.Ext4, size, false)
				require.ErrorIs(t, err, filesystem.ErrNotBlank)
				require.ErrorIs(t, err, backends.ErrPrecondition)
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.False(t, probe(t, path).Blank())
		})
	}
}

func TestFormatRefusesSizes(t *testing.T) {
	t.Parallel()
	maker := shared()
	for fs := range types {
		path := newImage(t, filesystem.MinBytes(fs))
		_, err := maker.Format(t.Context(), path, fs, filesystem.MinBytes(fs)-4096, false)
		require.ErrorIs(t, err, backends.ErrOutOfRange, "%s smaller than it can be", fs)
		_, err = maker.Format(t.Context(), path, fs, filesystem.MinBytes(fs)+4096, false)
		require.ErrorIs(t, err, backends.ErrOutOfRange, "%s larger than its device", fs)
		require.True(t, probe(t, path).Blank())
	}
	_, err := maker.Format(t.Context(), newImage(t, mebibyte), "zfs", mebibyte, false)
	require.ErrorIs(t, err, backends.ErrInvalid)
}

func TestFormatRefusesADeviceInUse(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Ext4)
	const size = 16 * mebibyte
	maker := shared()
	device := attach(t, newFilesystem(t, maker, filesystem.Ext4, size), loopdev.Config{}).Path()
	m := mount(t, device, filesystem.Ext4)
	_, err := maker.Format(t.Context(), device, filesystem.Ext4, size, false)
	require.ErrorIs(t, err, filesystem.ErrInUse)
	require.ErrorIs(t, filesystem.Check(t.Context(), device, filesystem.Ext4), filesystem.ErrInUse)
	m.fill(t)
}

// A pipe in place of the device must not hold the caller.
func TestFormatAndProbeRefuseWhatIsNoDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := dir + "/pipe"
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, path := range []string{dir, pipe, "/dev/null", dir + "/missing"} {
		_, err := filesystem.Probe(t.Context(), path)
		require.Error(t, err, path)
		_, err = shared().Format(t.Context(), path, filesystem.Ext4, 2*mebibyte, false)
		require.Error(t, err, path)
	}
}

// What does not fit the store must not look complete, whenever that shows: for a
// file it is the write that fails, for a device its page cache that cannot be
// written out.
func TestFormatOnAFullStore(t *testing.T) {
	t.Parallel()
	for fs, size := range types {
		for _, onDevice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, on a device: %v", fs, onDevice), func(t *testing.T) {
				t.Parallel()
				needType(t, fs)
				maker := shared()
				// Every room from none up to enough: full at each place in turn.
				factor := 2
				if testing.Short() {
					factor = 8
				}
				for pages := 0; ; pages = max(1, factor*pages) {
					store, path := newStore(t, pages, size)
					if onDevice {
						path = attach(t, path, loopdev.Config{}).Path()
					}
					_, err := maker.Format(t.Context(), path, fs, size, false)
					if err == nil {
						require.NoError(t, check(t, path, fs))
						require.Greater(t, pages, 1)
						return
					}
					if !onDevice {
						require.ErrorIs(t, err, backends.ErrExhausted)
					}
					content := probe(t, path)
					require.Equal(t, pages > 0, content.Half, "with %d pages", pages)
					require.Empty(t, content.Type)

					require.NoError(t, unix.Mount("", store, "", unix.MS_REMOUNT, "size=16m"))
					_, err = maker.Format(t.Context(), path, fs, size, false)
					require.NoError(t, err)
					require.NoError(t, check(t, path, fs))
				}
			})
		}
	}
}

// newStore is a tmpfs with room for that many pages of data, and a sparse image
// in it.
func newStore(t *testing.T, pages int, size int64) (store, image string) {
	t.Helper()
	// A size of 0 would be no limit.
	store = testenv.SmallTmpfsDir(t, int64(pages+1)*4096)
	require.NoError(t, os.WriteFile(filepath.Join(store, "other"), []byte("x"), 0o600))
	image = filepath.Join(store, "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, size))
	return store, image
}

func TestFormatHonoursItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := newImage(t, 2*mebibyte)
	_, err := shared().Format(ctx, path, filesystem.Ext4, 2*mebibyte, false)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, probe(t, path).Blank())
	_, err = filesystem.Probe(ctx, path)
	require.ErrorIs(t, err, context.Canceled)
}
