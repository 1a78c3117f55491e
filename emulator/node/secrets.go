package node

import (
	"context"

	"github.com/csiemu/csiemu/emulator/access"
)

// Authorize returns backends.ErrUnauthenticated where the class of a volume demands
// secrets for a call (its method, such as NodeStageVolume) and those that came
// are others. Where callers attach volumes, the
// publish context says whether there is anything to ask, so that a node works on
// while the array is away.
func (n *Node) Authorize(ctx context.Context, method, volumeID string, publishContext, secrets map[string]string) error {
	demands := !n.Attaches || publishContext[access.SecretsKey] != ""
	if v, ok := n.get(volumeID); ok {
		demands = demands || v.Demands
	}
	if !demands {
		return nil
	}
	return n.Array.Authorize(ctx, volumeID, method, access.Digests(secrets))
}
