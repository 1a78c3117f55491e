//go:build linux

package loop_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/loopdev"
)

func TestReopenAdoptsTheDeviceOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	user, err := os.OpenFile(filepath.Join("/dev", deviceName(t, a.ID)), os.O_RDWR, 0)
	require.NoError(t, err)
	defer user.Close()

	r.open()
	r.reopen(held(v, &a))
	_, err = user.WriteAt([]byte("goes on"), 0)
	require.NoError(t, err)
	require.NoError(t, user.Close())
	again, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, pc, again)
	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
}

func deviceName(t *testing.T, name string) string {
	t.Helper()
	d, err := loopdev.Find(t.Context(), name, -1, loopdev.Options{})
	require.NoError(t, err)
	return filepath.Base(d.Path())
}

func TestReopenAfterARebootAttachesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, readOnly := r.create(64*mebibyte), r.create(mebibyte)
	a, pc := r.attach(v, false)
	ra, _ := r.attach(readOnly, true)
	s, err := r.node.Stage(t.Context(), r.stageRequest(v, pc))
	require.NoError(t, err)
	write(t, filepath.Join(s.Path, "file"), "kept")
	require.NoError(t, r.node.Unstage(t.Context(), s)) // a reboot takes all mounts
	takeAway(t, a.ID)                                  // and all devices
	takeAway(t, ra.ID)
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)

	r.open()
	r.reopen(held(v, &a), held(readOnly, &ra))
	require.False(t, status(t, a.ID).ReadOnly)
	require.True(t, status(t, ra.ID).ReadOnly)
	// The orchestrator does not publish again: the node has the old context.
	s = r.stage(r.stageRequest(v, pc))
	require.Equal(t, "kept", read(t, filepath.Join(s.Path, "file")))
}

// hetznercloud/csi-driver#1455: a path alone tells nothing.
func TestReopenDoesNotAdoptADeviceOverADeletedImage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	old := status(t, a.ID)
	require.NoError(t, os.Remove(image(v)))
	require.NoError(t, os.WriteFile(image(v), make([]byte, mebibyte), 0o600))

	r.open()
	r.reopen(held(v, &a))
	now := status(t, a.ID)
	require.NotEqual(t, old.BackingInode, now.BackingInode)
	require.Equal(t, stat(t, image(v)).Ino, now.BackingInode)
}

func TestReopenLeavesADeviceThatOnlyHasTheName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a := backends.Attachment{ID: newID("att")}
	foreign := filepath.Join(t.TempDir(), "foreign")
	require.NoError(t, os.WriteFile(foreign, make([]byte, mebibyte), 0o600))
	bindForeign(t, foreign, a.ID)

	got := r.reports(held(v, &a))
	require.ErrorIs(t, got[v.ID], backends.ErrPrecondition)
	require.ErrorContains(t, got[v.ID], foreign)
	require.Equal(t, stat(t, foreign).Ino, status(t, a.ID).BackingInode, "it was touched")
}

// bindForeign binds a device that is none of the backend's, for the length of
// the test.
func bindForeign(t *testing.T, path, name string) {
	t.Helper()
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	d, err := pool.Attach(t.Context(), f, loopdev.Config{Name: name})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Detach(context.Background(), d)
		require.NoError(t, err)
		require.NoError(t, pool.Close())
	})
}

func TestReopenFreesWhatNothingExplains(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// held is what the records say of the attached volume.
		held func(backends.Volume, backends.Attachment) []backends.Held
	}{
		"a volume without a record": {func(backends.Volume, backends.Attachment) []backends.Held { return nil }},
		"a volume whose record has no attachment": {func(v backends.Volume, _ backends.Attachment) []backends.Held {
			return []backends.Held{held(v, nil)}
		}},
		"an attachment that was made anew": {func(v backends.Volume, _ backends.Attachment) []backends.Held {
			return []backends.Held{held(v, &backends.Attachment{ID: newID("att")})}
		}},
		"an attachment that was writable": {func(v backends.Volume, a backends.Attachment) []backends.Held {
			return []backends.Held{held(v, &backends.Attachment{ID: a.ID, ReadOnly: true})}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			v := r.create(mebibyte)
			a, _ := r.attach(v, false)
			neighbour := filepath.Join(t.TempDir(), "image")
			require.NoError(t, os.WriteFile(neighbour, make([]byte, mebibyte), 0o600))
			foreign := newID("att")
			bindForeign(t, neighbour, foreign)

			r.open()
			volumes := test.held(v, a)
			r.reopen(volumes...)
			if len(volumes) > 0 && volumes[0].Attachment != nil {
				require.Equal(t, volumes[0].Attachment.ReadOnly, status(t, volumes[0].Attachment.ID).ReadOnly)
				require.NoError(t, r.backend.Detach(t.Context(), v, *volumes[0].Attachment))
			}
			requireNoDevice(t, a.ID)
			require.Equal(t, foreign, status(t, foreign).Name, "a device that is not ours")
		})
	}
}

func TestReopenLeavesVolumesWithADamagedRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	aside := filepath.Join(r.dir, "damaged", "volumes-"+v.ID+"-1")
	require.NoError(t, os.Mkdir(filepath.Dir(aside), 0o700))
	require.NoError(t, os.Rename(v.Dir, aside))

	r.open()
	r.reopen()
	require.Equal(t, a.ID, status(t, a.ID).Name)
	require.NoError(t, os.Rename(aside, v.Dir)) // repaired
	r.open()
	r.reopen(held(v, &a))
}

func TestReopenOfADeviceThatIsStillInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	user, err := os.Open(filepath.Join("/dev", deviceName(t, a.ID)))
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, r.backend.Detach(t.Context(), v, a))

	r.open()
	next := backends.Attachment{ID: newID("att")}
	got := r.reports(held(v, &next))
	require.ErrorIs(t, got[v.ID], backends.ErrPrecondition)
	require.NoError(t, user.Close())
	_, err = r.backend.Attach(t.Context(), v, next)
	require.NoError(t, err)
}

func TestReopenReportsLostBytesAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lost, v := r.create(mebibyte), r.create(mebibyte)
	require.NoError(t, os.Remove(image(lost)))
	la, a := backends.Attachment{ID: newID("att")}, backends.Attachment{ID: newID("att")}
	got := r.reports(held(lost, &la), held(v, &a))
	require.Len(t, got, 1)
	require.ErrorIs(t, got[lost.ID], backends.ErrDataLoss)
	require.Equal(t, a.ID, status(t, a.ID).Name)
}

func TestReopenRemovesWhatKilledCopiesLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	s := r.snapshot(v)
	write(t, filepath.Join(v.Dir, "image.tmp"), "half")
	write(t, filepath.Join(s.Dir, "image.tmp"), "half")
	require.NoError(t, r.backend.Reopen(t.Context(), []backends.Held{held(v, nil)}, []backends.Snapshot{s}, func(id string, err error) {
		t.Errorf("%s: %v", id, err)
	}))
	require.NoFileExists(t, filepath.Join(v.Dir, "image.tmp"))
	require.NoFileExists(t, filepath.Join(s.Dir, "image.tmp"))
	require.FileExists(t, image(v))
}
