//go:build linux

package tmpfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestPlanOfABreakableVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	testenv.Need(t, kernel.FUSE)
	breakable := map[string]string{"breakable": "true"}
	l, err := r.backend.Plan(backends.Request{Block: true, RequiredBytes: mebibyte, Parameters: breakable})
	require.NoError(t, err)
	require.Equal(t, backends.Layout{SizeBytes: mebibyte, Block: true, Breakable: true}, l)
	_, err = r.backend.Plan(backends.Request{Filesystem: true, Parameters: breakable})
	require.ErrorIs(t, err, backends.ErrInvalid)
	_, err = r.backend.Plan(backends.Request{Block: true, Parameters: map[string]string{"provisioning": "thick"}})
	require.ErrorIs(t, err, backends.ErrInvalid)
}

func TestABreakableBlockVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	testenv.Need(t, kernel.FUSE)
	v := r.create(backends.Layout{SizeBytes: mebibyte, Block: true, Breakable: true})
	const delay = 50 * time.Millisecond
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{Latency: delay}))
	q := r.request(v)
	q.Block = true
	s := r.stage(q)
	device, err := os.OpenFile(s.Device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer device.Close()
	started := time.Now()
	_, err = device.Write(make([]byte, mebibyte))
	require.NoError(t, err)
	require.NoError(t, device.Sync(), "the image fills its tmpfs exactly")
	require.GreaterOrEqual(t, time.Since(started), delay)

	release, err := r.backend.Pause(t.Context(), v)
	require.NoError(t, err)
	snapshot := r.snapshot(v)
	require.NoError(t, release())
	require.FileExists(t, filepath.Join(snapshot.Dir, "block", "image"))
	require.NoError(t, device.Close())
	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))

	require.NoError(t, r.node.Unstage(t.Context(), s)) // a node that ends has nothing open
	r.open()
	a := backends.Attachment{ID: q.PublishContext["csiemu.dev/attachment"]}
	require.NoError(t, r.backend.Reopen(t.Context(), []backends.Held{{Volume: v, Attachment: &a}}, []backends.Snapshot{snapshot}, func(id string, err error) {
		t.Errorf("%s: %v", id, err)
	}))
	pc, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, q.PublishContext, pc)
}

func TestOnlyBlockVolumesAreShapedAndPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	require.ErrorIs(t, r.backend.Shape(t.Context(), v, backends.Shaping{}), backends.ErrPrecondition)
	_, err := r.backend.Pause(t.Context(), v)
	require.ErrorIs(t, err, backends.ErrPrecondition)
}
