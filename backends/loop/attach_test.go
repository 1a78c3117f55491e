//go:build linux

package loop_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestAttachGivesOneDeviceToAllNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, first := r.attach(v, false)
	boot, err := kernel.BootID()
	require.NoError(t, err)
	require.Equal(t, a.ID, first[loop.AttachmentKey])
	require.Equal(t, boot, first[loop.BootKey])
	require.Regexp(t, `^7:\d+$`, first[loop.DeviceKey])

	again, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, a.ID, status(t, a.ID).Name)

	_, err = r.backend.Attach(t.Context(), v, backends.Attachment{ID: newID("att")})
	require.ErrorIs(t, err, backends.ErrPrecondition, "a second writable device")
	_, err = r.backend.Attach(t.Context(), v, backends.Attachment{ID: a.ID, ReadOnly: true})
	require.ErrorIs(t, err, backends.ErrPrecondition, "the same one, but read-only")

	require.NoError(t, r.backend.Detach(t.Context(), v, backends.Attachment{ID: newID("att")}), "one that was never made")
	require.Equal(t, a.ID, status(t, a.ID).Name)
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
	require.NoError(t, r.backend.Detach(t.Context(), v, a), "a repeated call")
}

func TestAttachMakesADeviceAnewThatSomebodyTookAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	takeAway(t, a.ID)
	_, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, a.ID, status(t, a.ID).Name)
}

// takeAway releases a device behind the backend's back.
func takeAway(t *testing.T, name string) {
	t.Helper()
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(t, err)
	defer pool.Close()
	d, err := pool.Adopt(status(t, name).Index, name)
	require.NoError(t, err)
	inUse, err := pool.Detach(t.Context(), d)
	require.NoError(t, err)
	require.False(t, inUse)
}

func TestAttachOfLostBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	require.NoError(t, os.Remove(image(v)))
	_, err := r.backend.Attach(t.Context(), v, backends.Attachment{ID: newID("att")})
	require.ErrorIs(t, err, backends.ErrDataLoss)
}

func TestAReadOnlyDeviceRefusesWrites(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, true)
	require.True(t, status(t, a.ID).ReadOnly)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	require.True(t, s.ReadOnly)
	target := r.publish(s, backends.PublishRequest{})
	requireRefusesWrites(t, target)
	_, err := os.ReadFile(target)
	require.NoError(t, err)

	q = r.stageRequest(v, pc)
	_, err = r.node.Stage(t.Context(), q)
	require.ErrorIs(t, err, backends.ErrPrecondition, "blank, and cannot be formatted")
}

// requireRefusesWrites writes to a device node: the kernel may refuse to open it,
// or each write.
func requireRefusesWrites(t *testing.T, node string) {
	t.Helper()
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		_, err = f.WriteAt([]byte("forbidden"), 0)
	}
	require.ErrorIs(t, err, os.ErrPermission)
}

// A crash leaves a journal that the kernel cannot replay on a device that
// refuses writes.
func TestADirtyVolumeIsAttachedReadOnly(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			source := r.mounted(v, fsType)
			write(t, filepath.Join(source.Path, "file"), "flushed")
			dirty := r.restore(r.snapshot(v), size) // while it is mounted, as a crash leaves it
			content, err := filesystem.Probe(t.Context(), image(dirty))
			require.NoError(t, err)
			require.False(t, content.Clean)
			require.NoError(t, r.node.Unstage(t.Context(), source))

			a, pc := r.attach(dirty, true)
			require.True(t, status(t, a.ID).ReadOnly)
			requireNoDevice(t, a.ID+"-replay")
			q := r.stageRequest(dirty, pc)
			q.FSType, q.ReadOnly = fsType, true
			s := r.stage(q)
			require.Equal(t, "flushed", read(t, filepath.Join(s.Path, "file")))
			require.Error(t, os.WriteFile(filepath.Join(s.Path, "new"), nil, 0o600))
		})
	}
}

func TestDetachStopsAllIOOfADeviceInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	user, err := os.OpenFile(s.Device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer user.Close()
	_, err = user.WriteAt([]byte("before"), 0)
	require.NoError(t, err)

	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	// Kernels before 6.5 must leave the first sector.
	_, err = user.WriteAt([]byte("behind"), 64<<10)
	require.Error(t, err)
	require.Equal(t, "before", read(t, image(v))[:6])
	require.NotContains(t, read(t, image(v)), "behind")

	next := backends.Attachment{ID: newID("att")}
	started := time.Now()
	_, err = r.backend.Attach(t.Context(), v, next)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, a.ID)
	require.Less(t, time.Since(started), 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.backend.Attach(ctx, v, next)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, user.Close())
	require.NoError(t, r.node.Unstage(t.Context(), s))
	_, err = r.backend.Attach(t.Context(), v, next)
	require.NoError(t, err, "once its users have gone")
	require.NoError(t, r.backend.Detach(t.Context(), v, next))
}

func TestDetachWhileMounted(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			a, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			q.FSType = fsType
			s := r.stage(q)
			target := r.publish(s, backends.PublishRequest{})
			write(t, filepath.Join(target, "file"), "flushed")

			require.NoError(t, r.backend.Detach(t.Context(), v, a))
			f, err := os.Create(filepath.Join(target, "late"))
			if err == nil {
				_, err = f.WriteString("late")
				require.NoError(t, err, "into the page cache")
				err = f.Sync()
				f.Close()
			}
			require.Error(t, err)

			// What the node does next needs no device.
			require.NoError(t, r.node.Unpublish(t.Context(), s, target))
			require.NoError(t, r.node.Unstage(t.Context(), s))
			_, again := r.attach(v, false)
			q.PublishContext = again
			s = r.stage(q)
			require.Equal(t, "flushed", read(t, filepath.Join(s.Path, "file")))
		})
	}
}

func TestDeleteOfAnAttachedVolumeFreesItsDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	require.NoError(t, r.backend.Delete(t.Context(), v))
	requireNoDevice(t, a.ID)
	requireEmpty(t, v.Dir)
	require.NoError(t, r.backend.Delete(t.Context(), v), "a repeated call")
}

func TestGrowIsSeenByTheAttachedDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, _ := r.attach(v, false)
	v.SizeBytes = 3 * mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.NoError(t, r.backend.Grow(t.Context(), v), "a repeated call")
	d, err := loopdev.Find(t.Context(), a.ID, -1, loopdev.Options{})
	require.NoError(t, err)
	size, err := d.Size()
	require.NoError(t, err)
	require.EqualValues(t, 3*mebibyte, size)

	v.SizeBytes = mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	info, err := os.Stat(image(v))
	require.NoError(t, err)
	require.EqualValues(t, 3*mebibyte, info.Size(), "it shrank")
}

func TestCloseOfABackendThatLeavesNothing(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop)
	dir := tmpfsDir(t)
	b, err := loop.New(loop.Options{Dir: dir, Autoclear: true})
	require.NoError(t, err)
	v := backends.Volume{ID: "v", Dir: dir, Layout: backends.Layout{SizeBytes: mebibyte}}
	require.NoError(t, b.Create(t.Context(), v))
	a := backends.Attachment{ID: newID("att")}
	_, err = b.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.True(t, status(t, a.ID).Autoclear)
	require.NoError(t, b.Close())
	require.Eventually(t, func() bool {
		_, err := loopdev.Find(t.Context(), a.ID, -1, loopdev.Options{})
		return err != nil
	}, 5*time.Second, 5*time.Millisecond)
}
