//go:build linux

package loop_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// BenchmarkLife is a volume from creation to deletion, with a publication.
func BenchmarkLife(b *testing.B) {
	tests := map[string]backends.StageRequest{
		"block": {Block: true},
		"ext4":  {FSType: "ext4"},
	}
	for name, request := range tests {
		b.Run(name, func(b *testing.B) {
			r := newRig(b)
			v := r.volume(backends.Layout{SizeBytes: 64 * mebibyte})
			request.VolumeID, request.Path = v.ID, r.newDir("stage")
			target := r.target()
			ctx := b.Context()
			for b.Loop() {
				require.NoError(b, os.MkdirAll(v.Dir, 0o700))
				require.NoError(b, r.backend.Create(ctx, v))
				a := backends.Attachment{ID: newID("att")}
				pc, err := r.backend.Attach(ctx, v, a)
				require.NoError(b, err)
				request.PublishContext = pc
				s, err := r.node.Stage(ctx, request)
				require.NoError(b, err)
				require.NoError(b, r.node.Publish(ctx, s, backends.PublishRequest{Path: target}))
				require.NoError(b, r.node.Unpublish(ctx, s, target))
				require.NoError(b, r.node.Unstage(ctx, s))
				require.NoError(b, r.backend.Detach(ctx, v, a))
				require.NoError(b, r.backend.Delete(ctx, v))
			}
		})
	}
}
