//go:build linux

package tmpfs_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tests := map[string]struct {
		request backends.Request
		layout  backends.Layout
		err     error
	}{
		"nothing asked for":         {request: backends.Request{Filesystem: true}, layout: backends.Layout{SizeBytes: 1 << 30}},
		"raw block":                 {request: backends.Request{Block: true, RequiredBytes: 1}, layout: backends.Layout{SizeBytes: 4096, Block: true}},
		"its own type":              {request: backends.Request{Filesystem: true, FSTypes: []string{"tmpfs"}}, layout: backends.Layout{SizeBytes: 1 << 30}},
		"another type":              {request: backends.Request{Filesystem: true, FSTypes: []string{"ext4"}}, err: backends.ErrInvalid},
		"block and a file system":   {request: backends.Request{Filesystem: true, Block: true}, err: backends.ErrInvalid},
		"a parameter":               {request: backends.Request{Filesystem: true, Parameters: map[string]string{"provisioning": "thin"}}, err: backends.ErrInvalid},
		"a limit below its minimum": {request: backends.Request{Filesystem: true, LimitBytes: 1}, err: backends.ErrOutOfRange},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layout, err := r.backend.Plan(test.request)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.layout, layout)
		})
	}
}

func TestAVolumeIsATmpfsOfExactlyItsSize(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: 3*mebibyte + 4096})
	require.NoError(t, r.backend.Create(t.Context(), v), "a repeated call")
	at := filepath.Join(v.Dir, "data")
	entry := entryAt(t, at)
	require.Equal(t, "tmpfs", entry.FSType)
	require.Equal(t, "csiemu:"+v.ID, entry.Source)
	require.Contains(t, strings.Split(entry.SuperOptions, ","), "size=3076k")
	require.Contains(t, strings.Split(entry.SuperOptions, ","), "mode=755")
	shared, err := mount.Propagates(v.Dir)
	require.NoError(t, err)
	require.Equal(t, shared, entry.Shared(), "shared like the mount that it lies on")

	err = os.WriteFile(filepath.Join(at, "file"), make([]byte, 4*mebibyte), 0o600)
	require.ErrorIs(t, err, unix.ENOSPC)
	u, err := r.backend.Usage(t.Context(), v)
	require.NoError(t, err)
	require.EqualValues(t, v.SizeBytes, u.AllocatedBytes)

	v.SizeBytes = 8 * mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.Contains(t, strings.Split(entryAt(t, at).SuperOptions, ","), "size=8192k")
	require.NoError(t, os.WriteFile(filepath.Join(at, "file"), make([]byte, 4*mebibyte), 0o600))
	v.SizeBytes = mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	require.Contains(t, strings.Split(entryAt(t, at).SuperOptions, ","), "size=8192k", "it shrank")

	require.NoError(t, r.backend.Delete(t.Context(), v))
	require.NoError(t, r.backend.Delete(t.Context(), v), "a repeated call")
	requireEmpty(t, v.Dir)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestDeleteOfAVolumeInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	user, err := os.Create(filepath.Join(v.Dir, "data", "open"))
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, r.backend.Delete(t.Context(), v))
	requireEmpty(t, v.Dir)
	_, err = user.WriteString("into memory that goes with its last user")
	require.NoError(t, err)
}

func TestSnapshotRestoreAndCloneCopyTheTree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	at := filepath.Join(v.Dir, "data")
	require.NoError(t, os.Chown(at, 7, 8))
	require.NoError(t, os.Chmod(at, os.ModeSetgid|0o770))
	write(t, filepath.Join(at, "file"), "of the source")
	require.NoError(t, os.Link(filepath.Join(at, "file"), filepath.Join(at, "link")))

	s := r.snapshot(v)
	write(t, filepath.Join(at, "file"), "changed")
	require.Error(t, os.WriteFile(filepath.Join(s.Dir, "data", "new"), nil, 0o600), "a snapshot refuses writes")
	restored, clone := r.volume(backends.Layout{SizeBytes: 2 * mebibyte}), r.volume(v.Layout)
	require.NoError(t, r.backend.Restore(t.Context(), s, restored))
	require.NoError(t, r.backend.Restore(t.Context(), s, restored), "a repeated call")
	require.NoError(t, r.backend.Clone(t.Context(), v, clone))

	for want, copied := range map[string]backends.Volume{"of the source": restored, "changed": clone} {
		to := filepath.Join(copied.Dir, "data")
		require.Equal(t, want, read(t, filepath.Join(to, "file")))
		info, err := os.Stat(to)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|os.ModeSetgid|0o770, info.Mode())
		require.EqualValues(t, 7, stat(t, to).Uid)
		require.EqualValues(t, 8, stat(t, to).Gid)
		require.EqualValues(t, 2, stat(t, filepath.Join(to, "link")).Nlink)
		require.NoDirExists(t, filepath.Join(copied.Dir, "data.tmp"))
		require.NoError(t, os.WriteFile(filepath.Join(to, "new"), nil, 0o600))
	}
	require.Contains(t, entryAt(t, filepath.Join(restored.Dir, "data")).SuperOptions, "size=2048k")
}

func TestACopyThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: 4 * mebibyte})
	require.NoError(t, os.WriteFile(filepath.Join(v.Dir, "data", "file"), make([]byte, 3*mebibyte), 0o600))
	small := r.volume(backends.Layout{SizeBytes: mebibyte})
	require.ErrorIs(t, r.backend.Clone(t.Context(), v, small), backends.ErrExhausted)
	requireEmpty(t, small.Dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.backend.Clone(ctx, v, small), context.Canceled)
	requireEmpty(t, small.Dir)
}

func TestBlockVolumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte, Block: true})
	q := r.request(v)
	require.NotContains(t, q.PublishContext, tmpfs.PathKey)
	q.Block = true
	s := r.stage(q)
	target := r.publish(s, backends.PublishRequest{})
	device, err := os.OpenFile(target, os.O_RDWR, 0)
	require.NoError(t, err)
	full := bytes.Repeat([]byte("full"), mebibyte/4)
	_, err = device.WriteAt(full, 0)
	require.NoError(t, err)
	require.NoError(t, device.Sync(), "the image fills its tmpfs exactly")
	require.NoError(t, device.Close())

	release, err := r.node.Hold(t.Context(), s, backends.Hold{Published: true})
	require.NoError(t, err)
	snapshot := r.snapshot(v)
	require.NoError(t, release())
	restored := r.volume(backends.Layout{SizeBytes: 2 * mebibyte, Block: true})
	require.NoError(t, r.backend.Restore(t.Context(), snapshot, restored))
	q = r.request(restored)
	q.Block = true
	require.True(t, strings.HasPrefix(read(t, r.publish(r.stage(q), backends.PublishRequest{})), string(full)))

	v.SizeBytes = 2 * mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	size, err := r.node.Expand(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, v.SizeBytes, size)
	u, err := r.backend.Usage(t.Context(), v)
	require.NoError(t, err)
	require.EqualValues(t, mebibyte, u.AllocatedBytes)
}

func TestAttachTellsWhereTheVolumeIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	a := backends.Attachment{ID: newID("att")}
	pc, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(v.Dir, "data"), pc[tmpfs.PathKey])
	require.Equal(t, a.ID, pc[loop.AttachmentKey])
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
}

func TestFreeBytesIsMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	free, err := r.backend.FreeBytes(t.Context())
	require.NoError(t, err)
	require.Greater(t, free, int64(mebibyte))
}

func TestCloseOfABackendThatLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, err := tmpfs.New(tmpfs.Options{Dir: r.dir, Autoclear: true})
	require.NoError(t, err)
	for _, block := range []bool{false, true} {
		v := r.volume(backends.Layout{SizeBytes: mebibyte, Block: block})
		require.NoError(t, b.Create(t.Context(), v))
		_, err = b.Attach(t.Context(), v, backends.Attachment{ID: newID("att")})
		require.NoError(t, err)
	}
	require.NoError(t, b.Close())
	left, err := mount.ListUnder(r.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
