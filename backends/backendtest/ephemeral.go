package backendtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/testenv"
)

func testEphemeral(t *testing.T, h Harness) {
	for _, a := range h.accesses()[1:] {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			h.needs(t, a, Ephemeral)
			r := newRig(t, h)
			n := r.node.(backends.EphemeralNode)
			u, q := r.ephemeral(a, a.bytes)
			again, err := n.MakeEphemeral(t.Context(), q)
			require.NoError(t, err, "a repeated call")
			require.Equal(t, u.staged, again)
			u.requireStaged(true)
			first := u.publish(backends.PublishRequest{})
			u.requireSize(first)
			sum := u.write(first, "inline")
			second := u.publish(backends.PublishRequest{ReadOnly: true})
			u.requireData(second, sum)
			u.requireNoWrite(second)
			u.unpublish(second)
			if h.lacks(a, Limit) == "" {
				_, err := fill(filepath.Join(first, "filler"), a.bytes)
				require.True(t, testenv.IsNoSpace(err), "%v", err)
			}
			u.unpublish(first)
			require.NoError(t, n.RemoveEphemeral(t.Context(), u.staged))
			require.NoError(t, n.RemoveEphemeral(t.Context(), u.staged), "a repeated call")
			u.requireStaged(false)
			if _, err := os.Lstat(q.Dir); err == nil {
				r.requireEmpty(q.Dir)
			}
		})
		t.Run("wishes, "+a.name, func(t *testing.T) {
			t.Parallel()
			h.needs(t, a, Ephemeral)
			r := newRig(t, h)
			n := r.node.(backends.EphemeralNode)
			u, _ := r.ephemeral(a, 0)
			stats, err := r.node.Stats(t.Context(), u.staged, u.staged.Path)
			require.NoError(t, err)
			require.Positive(t, stats.TotalBytes, "a default size")

			for name, q := range map[string]backends.EphemeralRequest{
				"a negative size": {SizeBytes: -1}, "an unknown type": {FSType: "no-such-type"}, "a group that is none": {Group: "wheel"},
			} {
				q.VolumeID, q.Dir = newID("vol"), r.newDir("inline")
				_, err := n.MakeEphemeral(t.Context(), q)
				require.ErrorIs(t, err, backends.ErrInvalid, name)
				r.requireEmpty(q.Dir)
			}
		})
		t.Run("killed, "+a.name, func(t *testing.T) {
			t.Parallel()
			h.needs(t, a, Ephemeral)
			r := newRig(t, h)
			n := r.node.(backends.EphemeralNode)
			u, q := r.ephemeral(a, a.bytes)
			half := backends.Staged{VolumeID: q.VolumeID, Path: q.Dir}
			require.NoError(t, n.RemoveEphemeral(t.Context(), half), "the record of a caller that was killed")
			u.requireStaged(false)
			require.NoError(t, n.RemoveEphemeral(t.Context(), half))
			never := backends.Staged{VolumeID: newID("vol"), Path: r.newDir("inline")}
			require.NoError(t, n.RemoveEphemeral(t.Context(), never), "it was killed before it began")
		})
	}
}

// ephemeral makes an inline volume until the test ends.
func (r *rig) ephemeral(a access, size int64) (*use, backends.EphemeralRequest) {
	r.t.Helper()
	n := r.node.(backends.EphemeralNode)
	q := backends.EphemeralRequest{VolumeID: newID("vol"), SizeBytes: size, Dir: r.newDir("inline"), FSType: a.fsType}
	s, err := n.MakeEphemeral(r.t.Context(), q)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, n.RemoveEphemeral(context.Background(), s)) })
	u := r.use(backends.Volume{ID: q.VolumeID, Layout: backends.Layout{SizeBytes: size}}, a)
	u.staged = s
	return u, q
}
