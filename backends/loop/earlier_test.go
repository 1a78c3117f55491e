//go:build linux

package loop_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// replaceImage puts another file at the path of the image of v.
func replaceImage(t *testing.T, v backends.Volume) {
	t.Helper()
	require.NoError(t, os.Remove(image(v)))
	require.NoError(t, os.WriteFile(image(v), make([]byte, v.SizeBytes), 0o600))
}

func TestAnImageThatWasReplacedBehindItsDeviceIsNeitherReadNorGrown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	r.attach(v, false)
	replaceImage(t, v)
	require.ErrorIs(t, r.backend.Snapshot(t.Context(), v, r.snapshotName(v)), backends.ErrPrecondition)
	require.ErrorIs(t, r.backend.Clone(t.Context(), v, r.volume(v.Layout)), backends.ErrPrecondition)
	grown := v
	grown.SizeBytes *= 2
	require.ErrorIs(t, r.backend.Grow(t.Context(), grown), backends.ErrPrecondition)
	require.Equal(t, v.SizeBytes, stat(t, image(v)).Size)
}

func TestAttachRefusesADeviceOfItsNameOverAnotherFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a := backends.Attachment{ID: newID("att")}
	foreign := filepath.Join(t.TempDir(), "foreign")
	require.NoError(t, os.WriteFile(foreign, make([]byte, mebibyte), 0o600))
	bindForeign(t, foreign, a.ID)
	_, err := r.backend.Attach(t.Context(), v, a)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.Equal(t, stat(t, foreign).Ino, status(t, a.ID).BackingInode, "it was touched")
}

func TestAttachTakesOverTheDeviceOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	r.open()
	again, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, pc, again)
}

func TestAnImageThatIsTooShortIsDataLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, attached := r.create(mebibyte), r.create(mebibyte)
	a := backends.Attachment{ID: newID("att")}
	for _, v := range []backends.Volume{v, attached} {
		require.NoError(t, os.Truncate(image(v), mebibyte/2))
	}
	_, err := r.backend.Attach(t.Context(), v, a)
	require.ErrorIs(t, err, backends.ErrDataLoss)
	requireNoDevice(t, a.ID)
	r.open()
	got := r.reports(held(v, nil), held(attached, &a))
	require.ErrorIs(t, got[v.ID], backends.ErrDataLoss)
	require.ErrorIs(t, got[attached.ID], backends.ErrDataLoss)
	requireNoDevice(t, a.ID)
}

// A record has the new size before the image has it.
func TestTheEndOfAnInterruptedGrowthAttachesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a := backends.Attachment{ID: newID("att")}
	t.Cleanup(func() { require.NoError(t, r.backend.Detach(context.WithoutCancel(t.Context()), v, a)) })
	v.SizeBytes *= 2
	require.ErrorIs(t, r.reports(held(v, &a))[v.ID], backends.ErrDataLoss)
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.Equal(t, stat(t, image(v)).Ino, status(t, a.ID).BackingInode)
}
