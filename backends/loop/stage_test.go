//go:build linux

package loop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// sizes are small volumes of each type.
var sizes = map[string]int64{"ext4": 64 * mebibyte, "xfs": 300 * mebibyte, "btrfs": 256 * mebibyte}

func TestStageFormatsABlankVolumeAndKeepsItsContent(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			_, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			q.FSType = fsType
			s := r.stage(q)
			require.Equal(t, fsType, s.FSType)
			require.Equal(t, fsType, entryAt(t, s.Path).FSType)
			write(t, filepath.Join(s.Path, "file"), "kept")

			again, err := r.node.Stage(t.Context(), q)
			require.NoError(t, err, "a repeated call")
			require.Equal(t, s, again)
			staged, err := r.node.IsStaged(t.Context(), s)
			require.NoError(t, err)
			require.True(t, staged)

			require.NoError(t, r.node.Unstage(t.Context(), s))
			require.NoError(t, r.node.Unstage(t.Context(), s), "a repeated call")
			staged, err = r.node.IsStaged(t.Context(), s)
			require.NoError(t, err)
			require.False(t, staged)

			s = r.stage(q)
			require.Equal(t, "kept", read(t, filepath.Join(s.Path, "file")))
		})
	}
}

func TestStageGivesTheKernelExactlyTheseOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fsType, group string
		flags         []string
		options       string   // as recorded
		mount         string   // of the mount, in mountinfo
		super         []string // of the file system, in mountinfo
	}{
		"ext4 without flags":  {fsType: "ext4", options: "noinit_itable", mount: "rw,relatime", super: []string{"rw"}},
		"the default is ext4": {options: "noinit_itable", mount: "rw,relatime", super: []string{"rw"}},
		"ext4 with flags of both kinds": {
			fsType: "ext4", flags: []string{"noatime,nosuid", "data=journal"},
			options: "noinit_itable,noatime,nosuid,data=journal", mount: "rw,nosuid,noatime", super: []string{"rw", "data=journal"},
		},
		"ext4 for a group":           {fsType: "ext4", group: "1234", options: "noinit_itable,grpid", mount: "rw,relatime", super: []string{"rw", "grpid"}},
		"ext4 read-only":             {fsType: "ext4", flags: []string{"ro"}, options: "noinit_itable,ro", mount: "ro,relatime", super: []string{"ro"}},
		"xfs without flags":          {fsType: "xfs", options: "nouuid", mount: "rw,relatime", super: []string{"rw", "nouuid"}},
		"xfs for a group":            {fsType: "xfs", group: "1234", options: "nouuid,grpid", mount: "rw,relatime", super: []string{"rw", "nouuid", "grpid"}},
		"xfs with nouuid of its own": {fsType: "xfs", flags: []string{"nouuid"}, options: "nouuid", mount: "rw,relatime", super: []string{"rw", "nouuid"}},
		"btrfs with a flag":          {fsType: "btrfs", flags: []string{"compress=zstd"}, options: "compress=zstd", mount: "rw,relatime", super: []string{"rw", "compress=zstd:3"}},
		"btrfs for a group":          {fsType: "btrfs", group: "1234", options: "", mount: "rw,relatime", super: []string{"rw"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsType := test.fsType
			if fsType == "" {
				fsType = "ext4"
			}
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(sizes[fsType])
			_, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			q.FSType, q.Group, q.MountFlags = test.fsType, test.group, test.flags
			s := r.stage(q)
			require.Equal(t, test.options, s.Options)
			entry := entryAt(t, s.Path)
			require.Equal(t, test.mount, entry.Options)
			require.Subset(t, strings.Split(entry.SuperOptions, ","), test.super)
		})
	}
}

func TestStageRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*testing.T, *rig, backends.Volume, *backends.StageRequest)
		want   error
		// formats is true where only the mount can fail.
		formats bool
	}{
		"a type that does not exist": {change: func(_ *testing.T, _ *rig, _ backends.Volume, q *backends.StageRequest) { q.FSType = "minix" }, want: backends.ErrInvalid},
		"an option that the kernel does not know": {change: func(_ *testing.T, _ *rig, _ backends.Volume, q *backends.StageRequest) {
			q.MountFlags = []string{"no-such-option"}
		}, want: backends.ErrInvalid, formats: true},
		"a group that is no number": {change: func(_ *testing.T, _ *rig, _ backends.Volume, q *backends.StageRequest) { q.Group = "staff" }, want: backends.ErrInvalid},
		"a publish context of another driver": {change: func(_ *testing.T, _ *rig, _ backends.Volume, q *backends.StageRequest) {
			q.PublishContext = map[string]string{"other": "thing"}
		}, want: backends.ErrNotFound},
		"an attachment that no device carries": {change: func(_ *testing.T, _ *rig, _ backends.Volume, q *backends.StageRequest) {
			q.PublishContext[loop.AttachmentKey] = newID("att")
		}, want: backends.ErrNotFound},
		"content without a signature": {change: func(t *testing.T, _ *rig, v backends.Volume, _ *backends.StageRequest) {
			patch(t, image(v), 8192, "somebody's data")
		}, want: backends.ErrPrecondition},
		"swap space": {change: func(t *testing.T, _ *rig, v backends.Volume, _ *backends.StageRequest) {
			patch(t, image(v), 4096-10, "SWAPSPACE2")
		}, want: backends.ErrPrecondition},
		"another file system": {change: func(t *testing.T, r *rig, v backends.Volume, q *backends.StageRequest) {
			s, err := r.node.Stage(t.Context(), *q)
			require.NoError(t, err)
			require.NoError(t, r.node.Unstage(t.Context(), s))
			q.FSType = "xfs"
		}, want: backends.ErrPrecondition},
		"a path where something else is mounted": {change: func(t *testing.T, r *rig, _ backends.Volume, q *backends.StageRequest) {
			q.Path = r.mounted(r.create(64*mebibyte), "ext4").Path
		}, want: backends.ErrPrecondition},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Ext4)
			r := newRig(t)
			v := r.create(16 * mebibyte)
			_, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			test.change(t, r, v, &q)
			before := digest(t, image(v))
			_, err := r.node.Stage(t.Context(), q)
			require.ErrorIs(t, err, test.want)
			if !test.formats {
				require.Equal(t, before, digest(t, image(v)), "bytes were changed")
			}
		})
	}
}

func patch(t *testing.T, path string, offset int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(text), offset)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestStageSaysThatItsKernelIsAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(64 * mebibyte)
	q := r.stageRequest(v, map[string]string{loop.AttachmentKey: newID("att"), loop.BootKey: "00000000-0000-4000-8000-000000000000", loop.DeviceKey: "7:1"})
	_, err := r.node.Stage(t.Context(), q)
	require.ErrorIs(t, err, backends.ErrNotFound)
	require.ErrorContains(t, err, "different machines, or the machine was restarted")
}

func TestStageGivesTheRootToItsGroupOnce(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			_, pc := r.attach(v, false)
			q := r.stageRequest(v, pc)
			q.FSType, q.Group = fsType, "4321"
			s := r.stage(q)

			info, err := os.Stat(s.Path)
			require.NoError(t, err)
			require.EqualValues(t, 4321, stat(t, s.Path).Gid)
			require.Equal(t, os.ModeDir|os.ModeSetgid|0o775, info.Mode())
			require.NoError(t, os.Mkdir(filepath.Join(s.Path, "dir"), 0o755))
			write(t, filepath.Join(s.Path, "dir", "file"), "x")
			require.EqualValues(t, 4321, stat(t, filepath.Join(s.Path, "dir", "file")).Gid, "group of a new file")

			// What is so already is not touched.
			before := stat(t, s.Path)
			require.NoError(t, r.node.Unstage(t.Context(), s))
			s = r.stage(q)
			require.Equal(t, before.Ctim, stat(t, s.Path).Ctim)
		})
	}
}

func TestStageFinishesAFormatThatWasInterrupted(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	v := r.create(64 * mebibyte)
	patch(t, image(v), 0, "csiemu half format\n")
	patch(t, image(v), mebibyte, "part of a file system")
	content, err := filesystem.Probe(t.Context(), image(v))
	require.NoError(t, err)
	require.True(t, content.Half)
	s := r.mounted(v, "ext4")
	write(t, filepath.Join(s.Path, "file"), "x")
}

func TestASnapshotOfXFSIsMountedBesideItsSource(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.XFS)
	r := newRig(t)
	v := r.create(sizes["xfs"])
	source := r.mounted(v, "xfs")
	write(t, filepath.Join(source.Path, "file"), "of the source")
	release, err := r.node.Hold(t.Context(), source, backends.Hold{Published: true})
	require.NoError(t, err)
	snapshot := r.snapshot(v)
	require.NoError(t, release())

	restored := r.mounted(r.restore(snapshot, v.SizeBytes), "xfs")
	write(t, filepath.Join(source.Path, "file"), "changed")
	require.Equal(t, "of the source", read(t, filepath.Join(restored.Path, "file")))
}

func TestACloneOfBtrfsBesideItsSource(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Btrfs)
	r := newRig(t)
	v := r.create(sizes["btrfs"])
	source := r.mounted(v, "btrfs")
	write(t, filepath.Join(source.Path, "file"), "of the source")
	release, err := r.node.Hold(t.Context(), source, backends.Hold{Published: true})
	require.NoError(t, err)
	clone := r.volume(v.Layout)
	require.NoError(t, r.backend.Clone(t.Context(), v, clone))
	require.NoError(t, release())

	_, pc := r.attach(clone, false)
	q := r.stageRequest(clone, pc)
	q.FSType = "btrfs"
	if err := kernel.Probe(t.Context(), kernel.BtrfsTempFSID); err != nil {
		_, err := r.node.Stage(t.Context(), q)
		require.ErrorIs(t, err, backends.ErrPrecondition)
		require.NoError(t, r.node.Unstage(t.Context(), source))
	}
	s := r.stage(q)
	require.Equal(t, "of the source", read(t, filepath.Join(s.Path, "file")))
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.True(t, staged)
	elsewhere, err := r.node.IsPublished(t.Context(), s, source.Path)
	require.NoError(t, err)
	require.False(t, elsewhere, "the twin was taken for the volume")
}

func TestARestoreIntoALargerVolumeFillsIt(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.create(size)
			s := r.mounted(v, fsType)
			write(t, filepath.Join(s.Path, "file"), "x")
			require.NoError(t, r.node.Unstage(t.Context(), s))
			small := size
			s = r.mounted(r.restore(r.snapshot(v), 2*size), fsType)
			require.Equal(t, "x", read(t, filepath.Join(s.Path, "file")))
			stats, err := r.node.Stats(t.Context(), s, s.Path)
			require.NoError(t, err)
			require.Greater(t, stats.TotalBytes, small*3/2)
		})
	}
}

// A process that is killed in Stage leaves a record without a device.
func TestUnstageByARecordThatWasNeverCompleted(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	v := r.create(64 * mebibyte)
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	s, err := r.node.Stage(t.Context(), q)
	require.NoError(t, err)
	started := backends.Staged{VolumeID: v.ID, Path: q.Path}
	stranger := backends.Staged{VolumeID: newID("vol"), Path: q.Path}
	require.NoError(t, r.node.Unstage(t.Context(), stranger))
	staged, err := r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.True(t, staged, "another volume's record took it away")

	r.open()
	r.reopen(held(v, &a))
	require.NoError(t, r.node.Unstage(t.Context(), started))
	staged, err = r.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)
	require.NoError(t, r.node.Unstage(t.Context(), started), "a repeated call")
	requireEmpty(t, filepath.Join(r.work, "node"))
}
