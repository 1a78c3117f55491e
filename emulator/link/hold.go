package link

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

// Hold asks a node to stop changes of a volume, and returns when they have
// stopped. A node that is not connected, goes away or does not answer before
// ctx ends is ErrUnavailable; then nothing stays held. Other errors are the
// node's own.
//
// release is to be called once. Its error means that the volume may have
// changed since Hold returned: the node released it by itself, as it does when
// its session ends, or a limit of its own ran out.
func (s *Server) Hold(ctx context.Context, nodeID, volumeID string, exact bool) (release func(context.Context) error, err error) {
	n, err := s.session(nodeID)
	if err != nil {
		return nil, fmt.Errorf("hold volume %s: %w", volumeID, err)
	}
	hold, answer := n.ask(&linkpb.FromArray{Kind: &linkpb.FromArray_Hold{Hold: &linkpb.Hold{VolumeId: volumeID, Exact: exact}}})
	if err := n.await(ctx, answer); err != nil {
		if ctx.Err() != nil {
			// The node may succeed yet; nobody waits for the answer to this.
			number, _ := n.ask(releaseOf(hold))
			n.forget(number)
		}
		n.forget(hold)
		return nil, fmt.Errorf("hold volume %s on node %s: %w", volumeID, nodeID, err)
	}
	return func(ctx context.Context) error {
		number, answer := n.ask(releaseOf(hold))
		defer n.forget(number)
		if err := n.await(ctx, answer); err != nil {
			return fmt.Errorf("release volume %s on node %s: %w", volumeID, nodeID, err)
		}
		return nil
	}, nil
}

func releaseOf(hold uint64) *linkpb.FromArray {
	return &linkpb.FromArray{Kind: &linkpb.FromArray_Release{Release: &linkpb.Release{Hold: hold}}}
}

// await waits for an answer and returns the error in it.
func (n *session) await(ctx context.Context, answer <-chan *linkpb.Answer) error {
	select {
	case a := <-answer:
		return decode(codes.Code(a.GetCode()), a.GetMessage())
	case <-n.ctx.Done():
		select {
		case a := <-answer:
			return decode(codes.Code(a.GetCode()), a.GetMessage())
		default:
		}
		return fmt.Errorf("%w: the node went away: %w", backends.ErrUnavailable, context.Cause(n.ctx))
	case <-ctx.Done():
		return fmt.Errorf("%w: the node has not answered: %w", backends.ErrUnavailable, ctx.Err())
	}
}
