package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// unary serves a unary call through the chain.
func (c *chain) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	m := methods()[info.FullMethod]
	message, ok := request.(proto.Message)
	if m == nil || !ok {
		return handler(ctx, request)
	}
	call := Call{
		Method: m.full, Node: c.o.Node, Request: message, method: m, rest: c.steps,
		handle: func(ctx context.Context, call *Call) (err error) {
			call.Reply, err = handler(ctx, request)
			return err
		},
	}
	if err := call.Next(ctx); err != nil {
		return nil, err
	}
	return call.Reply, nil
}

// stream serves a streaming call through the chain. All streams of CSI have one
// request: it is received first, so that the steps see it as they do for unary
// calls, and then given to the method.
func (c *chain) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	m := methods()[info.FullMethod]
	if m == nil || info.IsClientStream {
		return handler(server, s)
	}
	request := m.request.New().Interface()
	if err := s.RecvMsg(request); err != nil {
		return Status(err)
	}
	call := Call{
		Method: m.full, Node: c.o.Node, Request: request, Stream: s, method: m, rest: c.steps,
		handle: func(ctx context.Context, call *Call) error {
			return handler(server, &received{call.Stream, ctx, request})
		},
	}
	return call.Next(s.Context())
}

// received is a stream whose request was taken out already.
type received struct {
	grpc.ServerStream
	ctx     context.Context
	request proto.Message
}

// Context returns the context that the steps made.
func (r *received) Context() context.Context { return r.ctx }

// RecvMsg gives the method the request, once.
func (r *received) RecvMsg(m any) error {
	into, ok := m.(proto.Message)
	if r.request == nil || !ok {
		return r.ServerStream.RecvMsg(m)
	}
	proto.Merge(into, r.request)
	r.request = nil
	return nil
}

// Registrar returns a registrar that registers services on s so that their
// calls run through the chain, for servers that were not made with
// ServerOptions. The server's own interceptors see the calls first.
func Registrar(s grpc.ServiceRegistrar, o Options) grpc.ServiceRegistrar {
	return &registrar{s, newChain(o)}
}

type registrar struct {
	to    grpc.ServiceRegistrar
	chain *chain
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(d *grpc.ServiceDesc, server any) {
	wrapped := *d
	wrapped.Methods = make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		wrapped.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: r.method(m.Handler)}
	}
	wrapped.Streams = make([]grpc.StreamDesc, len(d.Streams))
	for i, s := range d.Streams {
		wrapped.Streams[i] = s
		info := &grpc.StreamServerInfo{
			FullMethod: "/" + d.ServiceName + "/" + s.StreamName, IsClientStream: s.ClientStreams, IsServerStream: s.ServerStreams,
		}
		wrapped.Streams[i].Handler = func(server any, stream grpc.ServerStream) error {
			return r.chain.stream(server, stream, info, s.Handler)
		}
	}
	r.to.RegisterService(&wrapped, server)
}

func (r *registrar) method(handler grpc.MethodHandler) grpc.MethodHandler {
	return func(server any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		inner := r.chain.unary
		if outer != nil {
			inner = func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				return outer(ctx, request, info, func(ctx context.Context, request any) (any, error) {
					return r.chain.unary(ctx, request, info, next)
				})
			}
		}
		return handler(server, ctx, decode, inner)
	}
}
