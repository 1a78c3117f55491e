//go:build linux

package fusefile_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/imagefile"
)

func TestTheServedFileHasTheBytesOfTheImage(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	info, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, imageMiB*mebibyte, info.Size())

	text := bytes.Repeat([]byte("csiemu.."), 3*mebibyte/8) // more than one request
	_, err = f.WriteAt(text, 4096)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = r.image.ReadAt(got, 4096)
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, got), "the image has other bytes than were written")
	clear(got)
	_, err = f.ReadAt(got, 4096)
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, got), "other bytes are read than were written")
	require.NoError(t, f.Sync())

	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, mebibyte))
	_, err = r.image.ReadAt(got[:mebibyte], 4096)
	require.NoError(t, err)
	require.True(t, bytes.Equal(make([]byte, mebibyte), got[:mebibyte]), "a hole has bytes")
}

func TestRefreshShowsTheNewSize(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	d := r.device()
	require.NoError(t, r.image.Truncate(2*imageMiB*mebibyte))
	require.NoError(t, fusefile.Refresh(r.dir))
	require.NoError(t, d.Refresh())
	size, err := d.Size()
	require.NoError(t, err)
	require.EqualValues(t, 2*imageMiB*mebibyte, size)
}

func TestStatusTellsWhatIsServed(t *testing.T) {
	t.Parallel()
	want := fusefile.Behaviour{Faults: []fusefile.Fault{{Reads: true, Errno: unix.EREMOTEIO, Offset: 4096, Length: 4096}}}
	r := newRig(t, want)
	id, err := imagefile.IdentityOf(r.image)
	require.NoError(t, err)
	st, err := fusefile.Ask(t.Context(), r.dir)
	require.NoError(t, err)
	require.Equal(t, r.volume, st.VolumeID)
	require.Equal(t, id, st.Image)
	require.Equal(t, want, st.Behaviour)
	require.False(t, st.Stopping)
	info, err := os.Lstat(filepath.Join(r.dir, "control"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestThereIsOneHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	ctx, cancel := context.WithTimeout(t.Context(), patience/100)
	defer cancel()
	_, err := fusefile.Start(ctx, r.config(fusefile.Behaviour{}))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "another holder")
}

func TestAKilledHolderFailsIOAndLeavesNothingForTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	d := r.device()
	user, err := os.OpenFile(d.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer user.Close()
	block := aligned(4096)
	_, err = user.WriteAt(block, 0)
	require.NoError(t, err)

	before, err := d.Status()
	require.NoError(t, err)
	require.NoError(t, fusefile.Kill(t.Context(), r.dir))
	r.holder.Reap()
	_, err = user.ReadAt(block, 0)
	require.ErrorIs(t, err, unix.EIO)
	_, err = user.WriteAt(block, 0)
	require.ErrorIs(t, err, unix.EIO)
	_, err = fusefile.Ask(t.Context(), r.dir)
	require.ErrorIs(t, err, fusefile.ErrNotServing)
	after, err := d.Status()
	require.NoError(t, err, "the kernel remembers the inode of a dead file")
	require.Equal(t, before, after)

	r.start(fusefile.Behaviour{})
	_, err = r.open().ReadAt(block, 0)
	require.NoError(t, err)
}

func TestAStoppedHolderServesUntilItsLastUserHasGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	require.NoError(t, fusefile.Stop(t.Context(), r.dir, r.volume, false))
	_, err := fusefile.Open(r.dir, true)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = f.WriteAt([]byte("still"), 0)
	require.NoError(t, err)
	st, err := fusefile.Ask(t.Context(), r.dir)
	require.NoError(t, err)
	require.True(t, st.Stopping)
	_, err = fusefile.PauseWrites(t.Context(), r.dir, patience)
	require.ErrorIs(t, err, fusefile.ErrStopping)
	require.NoError(t, f.Close())
	r.stop()
	require.NoFileExists(t, filepath.Join(r.dir, "control"))
}

func TestWhatIsNotOursIsNotUnmounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	r.stop()
	at := filepath.Join(r.dir, "mount")
	require.NoError(t, unix.Mount("foreign", at, "tmpfs", 0, "size=4k"))
	defer func() { require.NoError(t, unix.Unmount(at, 0)) }()
	_, err := fusefile.Start(t.Context(), r.config(fusefile.Behaviour{}))
	require.ErrorContains(t, err, "foreign of type tmpfs is mounted")
	require.Error(t, fusefile.Stop(t.Context(), r.dir, r.volume, true))
	require.NoError(t, os.WriteFile(filepath.Join(at, "file"), nil, 0o600), "it was taken away")
}

func TestTheVariableAloneMakesNoHolder(t *testing.T) {
	t.Parallel()
	out, err := run(t, []string{"CSIEMU_FUSE_HOLDER=1"}, "-test.run=^$")
	require.NoError(t, err)
	require.Contains(t, out, "PASS")
}
