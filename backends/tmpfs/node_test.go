//go:build linux

package tmpfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestStageBindsTheVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	q := r.request(v)
	q.MountFlags = []string{"noexec,noatime"}
	s := r.stage(q)
	require.Equal(t, "tmpfs", s.FSType)
	require.Equal(t, "noexec,noatime", s.Options)
	require.EqualValues(t, mebibyte, s.SizeBytes)
	require.Equal(t, "rw,noexec,noatime", entryAt(t, s.Path).Options)
	again, err := r.node.Stage(t.Context(), q)
	require.NoError(t, err, "a repeated call")
	require.Equal(t, s, again)
	target := r.publish(s, backends.PublishRequest{})
	require.NoError(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target}), "a repeated call")
	write(t, filepath.Join(target, "file"), "kept")
	readOnly := r.publish(s, backends.PublishRequest{ReadOnly: true, MountFlags: []string{"nosuid"}})
	require.Equal(t, "ro,nosuid,noexec,noatime", entryAt(t, readOnly).Options)
	require.ErrorIs(t, os.WriteFile(filepath.Join(readOnly, "new"), nil, 0o600), unix.EROFS)
	for _, path := range []string{s.Path, target, readOnly} {
		stats, err := r.node.Stats(t.Context(), s, path)
		require.NoError(t, err)
		require.EqualValues(t, mebibyte, stats.TotalBytes)
		require.EqualValues(t, 4096, stats.UsedBytes)
		require.Positive(t, stats.TotalInodes)
	}
	_, err = r.node.Stats(t.Context(), s, r.work)
	require.ErrorIs(t, err, backends.ErrNotFound)

	v.SizeBytes = 2 * mebibyte
	require.NoError(t, r.backend.Grow(t.Context(), v))
	size, err := r.node.Expand(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, v.SizeBytes, size)

	for _, path := range []string{target, readOnly} {
		require.NoError(t, r.node.Unpublish(t.Context(), s, path))
		require.NoError(t, r.node.Unpublish(t.Context(), s, path), "a repeated call")
		require.NoDirExists(t, path)
	}
	require.NoError(t, r.node.Unstage(t.Context(), s))
	require.NoError(t, r.node.Unstage(t.Context(), s), "a repeated call")
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)
	require.Equal(t, "kept", read(t, filepath.Join(v.Dir, "data", "file")))
}

func TestStageOfAVolumeForReading(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := r.request(r.create(backends.Layout{SizeBytes: mebibyte}))
	q.ReadOnly, q.Group = true, "99"
	s := r.stage(q)
	target := r.publish(s, backends.PublishRequest{})
	require.ErrorIs(t, os.WriteFile(filepath.Join(target, "new"), nil, 0o600), unix.EROFS)
	require.Zero(t, stat(t, target).Gid, "nothing is changed")
}

func TestStageGivesTheRootToItsGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := r.request(r.create(backends.Layout{SizeBytes: mebibyte}))
	q.Group = "4321"
	s := r.stage(q)
	info, err := os.Stat(s.Path)
	require.NoError(t, err)
	require.EqualValues(t, 4321, stat(t, s.Path).Gid)
	require.Equal(t, os.ModeDir|os.ModeSetgid|0o775, info.Mode())
}

func TestStageRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		layout backends.Layout
		change func(*testing.T, *rig, *backends.StageRequest)
		want   error
		text   string
	}{
		"an option of the file system":  {change: func(_ *testing.T, _ *rig, q *backends.StageRequest) { q.MountFlags = []string{"noexec", "size=1g"} }, want: backends.ErrInvalid, text: `"size" belongs to the file system`},
		"another file system":           {change: func(_ *testing.T, _ *rig, q *backends.StageRequest) { q.FSType = "ext4" }, want: backends.ErrInvalid},
		"a group that is no number":     {change: func(_ *testing.T, _ *rig, q *backends.StageRequest) { q.Group = "-1" }, want: backends.ErrInvalid},
		"block access to a file system": {change: func(_ *testing.T, _ *rig, q *backends.StageRequest) { q.Block = true }, want: backends.ErrPrecondition},
		"a file system on block":        {layout: backends.Layout{Block: true}, change: func(*testing.T, *rig, *backends.StageRequest) {}, want: backends.ErrPrecondition},
		"a foreign publish context":     {change: func(_ *testing.T, _ *rig, q *backends.StageRequest) { q.PublishContext = nil }, want: backends.ErrNotFound},
		"a path where something else is mounted": {change: func(t *testing.T, r *rig, q *backends.StageRequest) {
			q.Path = r.stage(r.request(r.create(backends.Layout{SizeBytes: mebibyte}))).Path
		}, want: backends.ErrPrecondition},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			test.layout.SizeBytes = mebibyte
			q := r.request(r.create(test.layout))
			test.change(t, r, &q)
			_, err := r.node.Stage(t.Context(), q)
			require.ErrorIs(t, err, test.want)
			require.ErrorContains(t, err, test.text)
		})
	}
}

func TestHoldOfWhatCannotBeFrozen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.stage(r.request(r.create(backends.Layout{SizeBytes: mebibyte})))
	release, err := r.node.Hold(t.Context(), s, backends.Hold{})
	require.NoError(t, err)
	require.NoError(t, release())
	_, err = r.node.Hold(t.Context(), s, backends.Hold{Published: true})
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.NoError(t, r.node.Recover(t.Context(), s))
}

// A process that is killed in Stage leaves a record without a device.
func TestUnstageByARecordThatWasNeverCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(backends.Layout{SizeBytes: mebibyte})
	s := r.stage(r.request(v))
	require.NoError(t, r.node.Unstage(t.Context(), backends.Staged{VolumeID: newID("vol"), Path: s.Path}))
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.True(t, staged, "another volume's record took it away")
	require.NoError(t, r.node.Unstage(t.Context(), backends.Staged{VolumeID: v.ID, Path: s.Path}))
	staged, err = r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)
	require.NoError(t, r.node.Unstage(t.Context(), backends.Staged{VolumeID: v.ID, Path: s.Path}), "a repeated call")
}

func TestEphemeralVolumes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		request backends.EphemeralRequest
		options string   // as recorded
		mount   string   // of the mount, in mountinfo
		super   []string // of the file system, in mountinfo
		mode    os.FileMode
	}{
		"nothing asked for": {options: "size=67108864", mount: "rw,relatime", super: []string{"size=65536k"}, mode: os.ModeSticky | 0o777},
		"a size":            {request: backends.EphemeralRequest{SizeBytes: mebibyte}, options: "size=1048576", mount: "rw,relatime", super: []string{"size=1024k"}, mode: os.ModeSticky | 0o777},
		"a group":           {request: backends.EphemeralRequest{Group: "1234"}, options: "size=67108864,gid=1234,mode=2770", mount: "rw,relatime", super: []string{"size=65536k", "gid=1234", "mode=2770"}, mode: os.ModeSetgid | 0o770},
		"options of both kinds, verbatim": {
			request: backends.EphemeralRequest{FSType: "tmpfs", MountFlags: []string{"noexec,nr_inodes=10", "mode=0700"}},
			options: "size=67108864,noexec,nr_inodes=10,mode=0700", mount: "rw,noexec,relatime", super: []string{"nr_inodes=10", "mode=700"}, mode: 0o700,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			n := r.node.(backends.EphemeralNode)
			test.request.VolumeID, test.request.Dir = newID("csi"), r.newDir("ephemeral")
			s, err := n.MakeEphemeral(t.Context(), test.request)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, n.RemoveEphemeral(t.Context(), s)) })
			require.Equal(t, test.options, s.Options)
			again, err := n.MakeEphemeral(t.Context(), test.request)
			require.NoError(t, err, "a repeated call")
			require.Equal(t, s, again)

			target := r.publish(s, backends.PublishRequest{MountFlags: test.request.MountFlags})
			entry := entryAt(t, target)
			require.Equal(t, test.mount, entry.Options)
			require.Subset(t, strings.Split(entry.SuperOptions, ","), test.super)
			info, err := os.Stat(target)
			require.NoError(t, err)
			require.Equal(t, os.ModeDir|test.mode, info.Mode())

			require.NoError(t, r.node.Unpublish(t.Context(), s, target))
			require.NoError(t, n.RemoveEphemeral(t.Context(), s))
			require.NoError(t, n.RemoveEphemeral(t.Context(), s), "a repeated call")
			requireEmpty(t, test.request.Dir)
			all, err := mount.ListUnder(r.work)
			require.NoError(t, err)
			require.Empty(t, all)
		})
	}
}

func TestRemoveEphemeralByARecordThatWasNeverCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.node.(backends.EphemeralNode)
	dir := r.newDir("ephemeral")
	_, err := n.MakeEphemeral(t.Context(), backends.EphemeralRequest{VolumeID: "csi-1", Dir: dir})
	require.NoError(t, err)
	require.NoError(t, n.RemoveEphemeral(t.Context(), backends.Staged{VolumeID: "csi-1", Path: dir}))
	requireEmpty(t, dir)
}

func TestMakeEphemeralRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]backends.EphemeralRequest{
		"another file system": {FSType: "ext4"},
		"a negative size":     {SizeBytes: -1},
		"an unknown option":   {MountFlags: []string{"no-such-option"}},
		"an unknown group":    {Group: "staff"},
	}
	for name, request := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			request.Dir = r.newDir("ephemeral")
			_, err := r.node.(backends.EphemeralNode).MakeEphemeral(t.Context(), request)
			require.ErrorIs(t, err, backends.ErrInvalid)
			requireEmpty(t, request.Dir)
		})
	}
}
