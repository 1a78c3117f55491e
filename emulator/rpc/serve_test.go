package rpc_test

import (
	"context"
	"net"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// services are CSI's with every method UNIMPLEMENTED: a call that comes through
// the chain gets that, unless a step answers it.
type services struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedSnapshotMetadataServer
	csi.UnimplementedNodeServer
}

func register(s grpc.ServiceRegistrar, all *services) {
	csi.RegisterIdentityServer(s, all)
	csi.RegisterControllerServer(s, all)
	csi.RegisterGroupControllerServer(s, all)
	csi.RegisterSnapshotMetadataServer(s, all)
	csi.RegisterNodeServer(s, all)
}

// answer is a step that stands for the service method.
func answer(method func(context.Context, *rpc.Call) error) rpc.Step {
	return func(ctx context.Context, c *rpc.Call) error {
		if err := method(ctx, c); err != nil {
			return err
		}
		if c.Reply == nil && c.Stream == nil {
			c.Reply = message(output(c.Method))
		}
		return nil
	}
}

// serve runs a server with the chain and returns a connection to it.
func serve(tb testing.TB, o rpc.Options) *grpc.ClientConn {
	tb.Helper()
	s := grpc.NewServer(rpc.ServerOptions(o)...)
	register(s, &services{})
	return connect(tb, s)
}

func connect(tb testing.TB, s *grpc.Server, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	options = append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///bufconn", options...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, conn.Close())
		s.Stop()
		require.NoError(tb, <-served)
	})
	return conn
}

// call makes a unary call, or a streaming one to its end.
func call(ctx context.Context, conn *grpc.ClientConn, request proto.Message) error {
	_, err := reply(ctx, conn, request)
	return err
}

func reply(ctx context.Context, conn *grpc.ClientConn, request proto.Message) (proto.Message, error) {
	method, streams := methodOf(request)
	out := message(output(method))
	if !streams {
		return out, conn.Invoke(ctx, method, request, out)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return out, stream.RecvMsg(out)
}

// methodOf returns the full method that takes a request.
func methodOf(request proto.Message) (full string, streams bool) {
	for _, d := range descriptors() {
		if d.Input().FullName() == request.ProtoReflect().Descriptor().FullName() {
			return fullName(d), d.IsStreamingServer()
		}
	}
	panic("no method takes this message")
}

func output(full string) protoreflect.FullName {
	for _, d := range descriptors() {
		if fullName(d) == full {
			return d.Output().FullName()
		}
	}
	panic("no such method: " + full)
}

func fullName(d protoreflect.MethodDescriptor) string {
	return "/" + string(d.Parent().FullName()) + "/" + string(d.Name())
}

func message(name protoreflect.FullName) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

func descriptors() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	for i := range csi.File_csi_proto.Services().Len() {
		methods := csi.File_csi_proto.Services().Get(i).Methods()
		for j := range methods.Len() {
			all = append(all, methods.Get(j))
		}
	}
	return all
}
