//go:build linux

package loop_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestUnpublishLeavesWhatSomebodyElseMountedAtTheTarget(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4, kernel.Tmpfs)
	r := newRig(t)
	_, block := r.blockStage(r.create(mebibyte))
	for name, s := range map[string]backends.Staged{
		"file system": r.mounted(r.create(64*mebibyte), "ext4"),
		"raw block":   block,
	} {
		target := r.target()
		require.NoError(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target}), name)
		require.NoError(t, mount.Unmount(target), name)
		if s.Block {
			theirs := filepath.Join(r.newDir("theirs"), "file")
			write(t, theirs, "theirs")
			require.NoError(t, mount.Bind(t.Context(), theirs, target, mount.Options{}))
		} else {
			require.NoError(t, mount.Mount(t.Context(), "theirs", target, "tmpfs", mount.Options{}))
		}
		require.NoError(t, r.node.Unpublish(t.Context(), s, target), name)
		entryAt(t, target)
		require.NoError(t, mount.Unmount(target), name)
		require.NoError(t, r.node.Unpublish(t.Context(), s, target), name)
	}
}

func TestPublishRefusesADirectoryWithEntries(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Ext4)
	r := newRig(t)
	s := r.mounted(r.create(64*mebibyte), "ext4")
	target := r.newDir("pod")
	file := filepath.Join(target, "file")
	write(t, file, "theirs")
	require.ErrorIs(t, r.node.Publish(t.Context(), s, backends.PublishRequest{Path: target}), backends.ErrExists)
	require.Equal(t, "theirs", read(t, file))
	r.publish(s, backends.PublishRequest{Path: r.newDir("empty")})
}

func TestStageOnAFullStoreIsExhausted(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType), kernel.Tmpfs)
			r := newRig(t)
			dir := filepath.Join(r.newDir("small"), "store")
			_, err := mount.MakeDirTarget(dir)
			require.NoError(t, err)
			o, err := mount.ParseOptions([]string{"size=128k"})
			require.NoError(t, err)
			require.NoError(t, mount.Mount(t.Context(), "small", dir, "tmpfs", o))
			t.Cleanup(func() { require.NoError(t, mount.Unmount(dir)) })
			full := newRigAt(t, dir)
			v := full.create(size)
			_, pc := full.attach(v, false)
			q := full.stageRequest(v, pc)
			q.FSType = fsType
			_, err = full.node.Stage(t.Context(), q)
			require.ErrorIs(t, err, backends.ErrExhausted)
		})
	}
}
