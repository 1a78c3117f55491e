//go:build linux

package loop_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
)

func TestReopenAdoptsAHolderAndItsDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, pc := r.attach(v, false)
	user := direct(t, a.ID)
	before, err := fusefile.Ask(t.Context(), holderDir(v))
	require.NoError(t, err)
	// A shape that was noted, but not told before the process was killed.
	want := backends.Shaping{IOPS: 10_000}
	write(t, filepath.Join(holderDir(v), "shape.json"), `{"iops":10000}`)

	r.open()
	r.reopen(held(v, &a))
	_, err = user.WriteAt(aligned(4096), 0)
	require.NoError(t, err)
	require.NoError(t, user.Close())
	after, err := fusefile.Ask(t.Context(), holderDir(v))
	require.NoError(t, err)
	require.Equal(t, before.PID, after.PID)
	require.Equal(t, want, after.Behaviour.Shape)
	again, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, pc, again)
	release, err := r.backend.Pause(t.Context(), v)
	require.NoError(t, err)
	require.NoError(t, release())
	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
	requireNoHolder(t, v)
}

func TestReopenOfBrokenBreakableVolumes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// breaks is what happened between the two processes.
		breaks func(*testing.T, backends.Volume, backends.Attachment)
		// replaced is true where another holder serves the volume now.
		replaced bool
	}{
		"nothing": {breaks: func(*testing.T, backends.Volume, backends.Attachment) {}},
		"the device is gone": {
			breaks: func(t *testing.T, _ backends.Volume, a backends.Attachment) { takeAway(t, a.ID) }, replaced: true,
		},
		"the holder is gone": {
			breaks: func(t *testing.T, v backends.Volume, _ backends.Attachment) {
				require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
			}, replaced: true,
		},
		"the holder and its mount are gone": {
			breaks: func(t *testing.T, v backends.Volume, _ backends.Attachment) {
				require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
				require.NoError(t, unix.Unmount(filepath.Join(holderDir(v), "mount"), unix.MNT_DETACH))
			}, replaced: true,
		},
		"all is gone, as after a reboot": {
			breaks: func(t *testing.T, v backends.Volume, a backends.Attachment) {
				takeAway(t, a.ID)
				require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
				require.NoError(t, unix.Unmount(filepath.Join(holderDir(v), "mount"), unix.MNT_DETACH))
			}, replaced: true,
		},
		"the note is in pieces": {
			breaks: func(t *testing.T, v backends.Volume, a backends.Attachment) {
				takeAway(t, a.ID)
				write(t, filepath.Join(holderDir(v), "device.json"), "{")
			}, replaced: true,
		},
		"the image is another": {
			breaks: func(t *testing.T, v backends.Volume, _ backends.Attachment) {
				copied := image(v) + ".copy"
				write(t, copied, read(t, image(v)))
				require.NoError(t, os.Rename(copied, image(v)))
			}, replaced: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			v := r.breakable(mebibyte)
			a, _ := r.attach(v, false)
			block := aligned(4096)
			copy(block, "kept")
			user := direct(t, a.ID)
			_, err := user.WriteAt(block, 0)
			require.NoError(t, err)
			require.NoError(t, user.Close())
			before, err := fusefile.Ask(t.Context(), holderDir(v))
			require.NoError(t, err)

			c.breaks(t, v, a)
			r.open()
			r.reopen(held(v, &a))
			after, err := fusefile.Ask(t.Context(), holderDir(v))
			require.NoError(t, err)
			require.Equal(t, c.replaced, before.PID != after.PID)
			clear(block)
			_, err = direct(t, a.ID).ReadAt(block, 0)
			require.NoError(t, err)
			require.Equal(t, "kept", string(block[:4]))
		})
	}
}

func TestReopenFreesBreakableVolumesThatNothingExplains(t *testing.T) {
	t.Parallel()
	for name, alive := range map[string]bool{"with their holder": true, "whose holder is dead": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			detached, unknown := r.breakable(mebibyte), r.breakable(mebibyte)
			a, _ := r.attach(detached, false)
			b, _ := r.attach(unknown, false)
			if !alive {
				require.NoError(t, fusefile.Kill(t.Context(), holderDir(detached)))
				require.NoError(t, fusefile.Kill(t.Context(), holderDir(unknown)))
			}
			r.open()
			r.reopen(held(detached, nil))
			requireNoDevice(t, a.ID)
			requireNoDevice(t, b.ID)
			requireNoHolder(t, detached)
			requireNoHolder(t, unknown)
		})
	}
}

func TestReopenOfADeadDeviceThatIsStillInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	user := direct(t, a.ID)
	require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
	r.open()
	got := r.reports(held(v, &a))
	require.ErrorIs(t, got[v.ID], backends.ErrPrecondition)
	require.ErrorContains(t, got[v.ID], "still in use")
	require.NoError(t, user.Close())
	_, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	_, err = direct(t, a.ID).ReadAt(aligned(4096), 0)
	require.NoError(t, err)
}

func TestReopenOfABreakableVolumeWhoseImageWasDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	user := direct(t, a.ID)
	require.NoError(t, os.Remove(image(v)))
	r.open()
	got := r.reports(held(v, &a))
	require.ErrorIs(t, got[v.ID], backends.ErrDataLoss)
	_, err := user.WriteAt(aligned(4096), 0)
	require.NoError(t, err, "who uses it goes on")
	require.NoError(t, user.Close())
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
	requireNoHolder(t, v)
	_, err = r.backend.Attach(t.Context(), v, a)
	require.ErrorIs(t, err, backends.ErrDataLoss)
}
