//go:build linux

package loop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestPublishBindsTheStagedFileSystem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		staged   []string
		request  backends.PublishRequest
		mount    string // options of the mount, in mountinfo
		readOnly bool
		err      error
	}{
		"without options":                    {mount: "rw,relatime"},
		"read-only":                          {request: backends.PublishRequest{ReadOnly: true}, mount: "ro,relatime", readOnly: true},
		"with attributes":                    {request: backends.PublishRequest{MountFlags: []string{"noexec,nosuid", "noatime"}}, mount: "rw,nosuid,noexec,noatime"},
		"with ro among its options":          {request: backends.PublishRequest{MountFlags: []string{"ro"}}, mount: "ro,relatime", readOnly: true},
		"with options that the stage has":    {staged: []string{"commit=7"}, request: backends.PublishRequest{MountFlags: []string{"commit=7", "noexec"}}, mount: "rw,noexec,relatime"},
		"with options that the stage lacks":  {request: backends.PublishRequest{MountFlags: []string{"commit=7"}}, err: backends.ErrInvalid},
		"with another value than the stage":  {staged: []string{"commit=7"}, request: backends.PublishRequest{MountFlags: []string{"commit=8"}}, err: backends.ErrInvalid},
		"of a stage that was asked to be ro": {staged: []string{"ro"}, mount: "ro,relatime", readOnly: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Ext4)
			r := newRig(t)
			s := r.mounted(r.create(64*mebibyte), "ext4", test.staged...)
			test.request.Path = r.target()
			if test.err != nil {
				require.ErrorIs(t, r.node.Publish(t.Context(), s, test.request), test.err)
				require.NoDirExists(t, test.request.Path)
				return
			}
			target := r.publish(s, test.request)
			require.Equal(t, test.mount, entryAt(t, target).Options)
			err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600)
			require.Equal(t, test.readOnly, err != nil, "%v", err)
			published, err := r.node.IsPublished(t.Context(), s, target)
			require.NoError(t, err)
			require.True(t, published)
			require.NoError(t, r.node.Publish(t.Context(), s, test.request), "a repeated call")

			require.NoError(t, r.node.Unpublish(t.Context(), s, target))
			require.NoDirExists(t, target, "mounted once only")
			require.NoError(t, r.node.Unpublish(t.Context(), s, target), "a repeated call")
			published, err = r.node.IsPublished(t.Context(), s, target)
			require.NoError(t, err)
			require.False(t, published)
		})
	}
}

func TestPublishRefusesATargetInAnotherUse(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	s := r.mounted(r.create(64*mebibyte), "ext4")
	other := r.mounted(r.create(64*mebibyte), "ext4")
	target := r.publish(s, backends.PublishRequest{})
	require.ErrorIs(t, r.node.Publish(t.Context(), other, backends.PublishRequest{Path: target}), backends.ErrExists, "another volume")
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target, ReadOnly: true}), backends.ErrExists, "in another way")
	file := filepath.Join(r.newDir("pod"), "file")
	write(t, file, "x")
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: file}), backends.ErrExists, "a file")
}

// ydb-platform/nbs#2936: a file system that made itself read-only must not be
// handed to a pod that wants to write.
func TestPublishOfAFileSystemThatMadeItselfReadOnly(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	s := r.mounted(r.create(64*mebibyte), "ext4", "errors=remount-ro")
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(s.Device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Skipf("this kernel makes no errors on demand: %v", err)
	}
	target := r.target()
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target}), backends.ErrPrecondition)
	require.NoDirExists(t, target)
	r.publish(s, backends.PublishRequest{ReadOnly: true})
}

func TestPublishOfAFileSystemThatIsShutDown(t *testing.T) {
	t.Parallel()
	for fsType, size := range map[string]int64{"ext4": sizes["ext4"], "xfs": sizes["xfs"]} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			s := r.mounted(r.create(size), fsType)
			target := r.publish(s, backends.PublishRequest{})
			shutdown(t, s.Path)
			late := r.target()
			require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: late}), backends.ErrPrecondition)
			require.NoDirExists(t, late)
			require.NoError(t, r.node.Unpublish(t.Context(), s, target))
			require.NoDirExists(t, target)
			require.NoError(t, r.node.Unstage(t.Context(), s))
		})
	}
}

// shutdown makes a file system fail everything from now on, as when its journal
// cannot be written.
func shutdown(t *testing.T, path string) {
	t.Helper()
	const goingDown = 0x8004587D // FS_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
	dir, err := os.Open(path)
	require.NoError(t, err)
	defer dir.Close()
	flags := new(uint32)
	*flags = 2 // without flushing the log
	ioctl(t, dir, goingDown, flags)
}

func TestReadOnlyBlockRefusesWritesWhileAnotherTargetTakesThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	writable := r.publish(s, backends.PublishRequest{})
	first := r.publish(s, backends.PublishRequest{ReadOnly: true})
	second := r.publish(s, backends.PublishRequest{ReadOnly: true})
	require.Equal(t, "ro", strings.Split(entryAt(t, first).Options, ",")[0])

	requireRefusesWrites(t, first)
	f, err := os.OpenFile(writable, os.O_RDWR|unix.O_SYNC, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("written"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "written", read(t, first)[:7])
	for _, target := range []string{writable, first, second} {
		published, err := r.node.IsPublished(t.Context(), s, target)
		require.NoError(t, err)
		require.True(t, published)
		stats, err := r.node.Stats(t.Context(), s, target)
		require.NoError(t, err)
		require.Equal(t, backends.Stats{Block: true, TotalBytes: mebibyte, AvailableBytes: -1, UsedBytes: -1}, stats)
	}

	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))
	size, err := r.node.Expand(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, v.SizeBytes, size)
	require.Len(t, read(t, first), int(v.SizeBytes), "the read-only device has not grown")

	require.NoError(t, r.node.Unpublish(t.Context(), s, first))
	require.Len(t, readers(t, a.ID), 1, "the second target needs it")
	// A new process of the node finds it by its name.
	r.open()
	r.reopen(held(v, &a))
	published, err := r.node.IsPublished(t.Context(), s, second)
	require.NoError(t, err)
	require.True(t, published)
	require.NoError(t, r.node.Unpublish(t.Context(), s, second))
	require.Empty(t, readers(t, a.ID))
	require.NoError(t, r.node.Unpublish(t.Context(), s, writable))
	require.NoError(t, r.node.Unstage(t.Context(), s))
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
}

func TestDetachFreesTheReadOnlyDeviceOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	target := r.publish(s, backends.PublishRequest{ReadOnly: true})
	require.Len(t, readers(t, a.ID), 1)

	r.open()
	r.reopen(held(v, &a))
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	_, next := r.attach(v, false)
	require.NotNil(t, next)
	require.Empty(t, readers(t, a.ID))
	// The target has to go too.
	require.NoError(t, r.node.Unpublish(t.Context(), s, target))
	require.NoFileExists(t, target)
}

func TestUnpublishNeedsNoDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	target := r.publish(s, backends.PublishRequest{})
	r.open() // a process that holds no device
	takeAway(t, a.ID)
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: r.target()}), backends.ErrPrecondition)
	require.NoError(t, r.node.Unpublish(t.Context(), s, target))
	require.NoFileExists(t, target)
	require.NoError(t, r.node.Unstage(t.Context(), s))
}

func TestPublishOfBlockTakesNoOptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	_, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	s := r.stage(q)
	target := r.target()
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target, MountFlags: []string{"noexec"}}), backends.ErrInvalid)
	require.NoFileExists(t, target)
}

// Two nodes of one kernel share the superblock of a volume.
func TestTwoNodesShareAFileSystem(t *testing.T) {
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
			first := r.stage(q)
			other, err := r.backend.Node(backends.NodeConfig{Dir: r.newDir("node")})
			require.NoError(t, err)
			defer func() { require.NoError(t, other.Close()) }()
			q = r.stageRequest(v, pc)
			q.FSType, q.ReadOnly = fsType, true // one that only reads
			second, err := other.Stage(t.Context(), q)
			require.NoError(t, err)
			defer func() { require.NoError(t, other.Unstage(t.Context(), second)) }()

			write(t, filepath.Join(first.Path, "file"), "shared")
			target := r.target()
			require.NoError(t, other.Publish(t.Context(), second, backends.PublishRequest{Path: target}))
			defer func() { require.NoError(t, other.Unpublish(t.Context(), second, target)) }()
			require.Equal(t, "shared", read(t, filepath.Join(target, "file")))
			require.ErrorIs(t, os.WriteFile(filepath.Join(target, "new"), nil, 0o600), unix.EROFS)

			release, err := r.node.Hold(t.Context(), first, backends.Hold{Published: true})
			require.NoError(t, err)
			_, err = other.Hold(t.Context(), second, backends.Hold{Published: true})
			require.ErrorIs(t, err, backends.ErrHeld)
			require.NoError(t, release())
		})
	}
}
