package link

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

// maxNodeID is CSI's limit for node ids, in bytes.
const maxNodeID = 256

// arrayService is the gRPC face of a Server.
type arrayService struct {
	linkpb.UnimplementedArrayServer
	server *Server
}

// SizeOf implements the service.
func (a *arrayService) SizeOf(ctx context.Context, r *linkpb.SizeOfRequest) (*linkpb.SizeOfResponse, error) {
	size, err := a.server.o.Array.SizeOf(ctx, r.GetVolumeId())
	return &linkpb.SizeOfResponse{SizeBytes: size}, err
}

// AttachLocal implements the service.
func (a *arrayService) AttachLocal(ctx context.Context, r *linkpb.AttachLocalRequest) (*linkpb.AttachLocalResponse, error) {
	publish, err := a.server.o.Array.AttachLocal(ctx, r.GetVolumeId(), r.GetNodeId(), r.GetReadOnly())
	return &linkpb.AttachLocalResponse{PublishContext: publish}, err
}

// DetachLocal implements the service.
func (a *arrayService) DetachLocal(ctx context.Context, r *linkpb.DetachLocalRequest) (*linkpb.DetachLocalResponse, error) {
	return &linkpb.DetachLocalResponse{}, a.server.o.Array.DetachLocal(ctx, r.GetVolumeId(), r.GetNodeId())
}

// Authorize implements the service.
func (a *arrayService) Authorize(ctx context.Context, r *linkpb.AuthorizeRequest) (*linkpb.AuthorizeResponse, error) {
	return &linkpb.AuthorizeResponse{}, a.server.o.Array.Authorize(ctx, r.GetVolumeId(), r.GetMethod(), r.GetDigests())
}

// Session implements the service. It returns when the session is over.
func (a *arrayService) Session(stream linkpb.Array_SessionServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if id := hello.GetNodeId(); id == "" || len(id) > maxNodeID {
		return fmt.Errorf("begin a session: a node introduces itself by an id of 1 to %d bytes: %w", maxNodeID, backends.ErrInvalid)
	}
	s := newSession(stream, Node{ID: hello.GetNodeId(), Topology: hello.GetTopology(), Staged: hello.GetStagedVolumeIds()})
	if err := a.server.admit(stream.Context(), s); err != nil {
		return err
	}
	return a.server.run(s)
}
