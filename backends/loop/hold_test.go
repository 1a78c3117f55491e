//go:build linux

package loop_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// blockStage attaches v and stages it as raw block.
func (r *rig) blockStage(v backends.Volume) (backends.Attachment, backends.Staged) {
	r.t.Helper()
	a, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.Block = true
	return a, r.stage(q)
}

func TestADetachedBlockVolumeShowsNoOtherVolumeAtItsTargets(t *testing.T) {
	t.Parallel()
	for name, reopened := range map[string]bool{"staged by this process": false, "staged by an earlier process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			v := r.create(mebibyte)
			a, s := r.blockStage(v)
			targets := []string{r.publish(s, backends.PublishRequest{}), r.publish(s, backends.PublishRequest{ReadOnly: true})}
			if reopened {
				r.open()
				r.reopen(held(v, &a))
				staged, err := r.node.IsStaged(t.Context(), s)
				require.NoError(t, err)
				require.True(t, staged)
				for _, target := range targets {
					published, err := r.node.IsPublished(t.Context(), s, target)
					require.NoError(t, err)
					require.True(t, published)
				}
			}
			require.NoError(t, r.backend.Detach(t.Context(), v, a))
			require.NotZero(t, status(t, a.ID).SizeLimit, "it is not fenced")
			for range 3 {
				other := r.create(mebibyte)
				require.NoError(t, os.WriteFile(image(other), append([]byte("other"), make([]byte, mebibyte-5)...), 0o600))
				r.attach(other, false)
			}
			for _, target := range targets {
				data, err := os.ReadFile(target)
				require.NotContains(t, string(data), "other", "%v", err)
				require.NoError(t, r.node.Unpublish(t.Context(), s, target))
			}
			require.NoError(t, r.node.Unstage(t.Context(), s))
			requireNoDevice(t, a.ID)
			require.Empty(t, readers(t, a.ID))
			r.attach(v, false)
		})
	}
}

func TestCloseLetsGoOfBlockVolumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, s := r.blockStage(v)
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	r.open()
	requireNoDevice(t, a.ID)
	require.NoError(t, r.node.Unstage(t.Context(), s))
}

func TestUnstageByARecordThatWasNeverCompletedLetsGoOfABlockVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(mebibyte)
	a, s := r.blockStage(v)
	require.NoError(t, r.node.Unstage(t.Context(), backends.Staged{VolumeID: v.ID, Path: s.Path, Block: true}))
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
}
