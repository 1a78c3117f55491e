package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/node"
)

// A node works on while the array is away, so it asks only about volumes whose
// class demands secrets.
func TestNodeAsksTheArrayAboutDemandedSecretsOnly(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	plain := b.attached(t, "plain")
	require.NoError(t, b.Authorize(t.Context(), "NodeStageVolume", plain.VolumeID, plain.PublishContext, nil))
	require.Empty(t, b.array.asked)

	r := b.attached(t, "guarded")
	r.PublishContext[access.SecretsKey] = "demanded"
	require.ErrorIs(t, b.Authorize(t.Context(), "NodeStageVolume", r.VolumeID, r.PublishContext, nil), backends.ErrUnauthenticated)
	right := map[string]string{"token": "x"}
	require.NoError(t, b.Authorize(t.Context(), "NodeStageVolume", r.VolumeID, r.PublishContext, right))
	require.NoError(t, b.Stage(t.Context(), r))
	require.ErrorIs(t, b.Authorize(t.Context(), "NodeExpandVolume", r.VolumeID, nil, nil), backends.ErrUnauthenticated, "it remembers")
	b = b.restart(t)
	require.ErrorIs(t, b.Authorize(t.Context(), "NodeExpandVolume", r.VolumeID, nil, nil), backends.ErrUnauthenticated, "also after a restart")
	require.NoError(t, b.Unstage(t.Context(), r.VolumeID, r.Path))

	local := open(t, t.TempDir(), func(o *node.Options) { o.Attaches = false })
	require.ErrorIs(t, local.Authorize(t.Context(), "NodeStageVolume", "v", nil, nil), backends.ErrUnauthenticated,
		"without ControllerPublishVolume nobody has said anything before")
}
