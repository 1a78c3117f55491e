package conformance

import (
	"context"
	"maps"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// conn gives each call its deadline and its secrets.
type conn struct {
	grpc.ClientConnInterface
	timeout time.Duration
	secrets map[string]map[string]string
}

// Invoke makes a unary call.
func (c conn) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if m, ok := request.(proto.Message); ok {
		request = c.withSecrets(path.Base(method), m)
	}
	return c.ClientConnInterface.Invoke(ctx, method, request, response, options...)
}

// NewStream makes a streaming call, whose caller sets the deadline.
func (c conn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, options...)
	if err != nil {
		return nil, err
	}
	return stream{s, c, path.Base(method)}, nil
}

type stream struct {
	grpc.ClientStream
	conn conn
	rpc  string
}

// SendMsg sends a request with the secrets of its RPC.
func (s stream) SendMsg(m any) error {
	if request, ok := m.(proto.Message); ok {
		m = s.conn.withSecrets(s.rpc, request)
	}
	return s.ClientStream.SendMsg(m)
}

// withSecrets returns the request with the secrets of its RPC, unless it has
// secrets or can have none.
func (c conn) withSecrets(rpc string, m proto.Message) proto.Message {
	secrets, ok := c.secrets[rpc]
	if !ok {
		secrets = c.secrets[""]
	}
	field := m.ProtoReflect().Descriptor().Fields().ByName("secrets")
	if len(secrets) == 0 || field == nil || m.ProtoReflect().Get(field).Map().Len() > 0 {
		return m
	}
	m = proto.Clone(m)
	values := m.ProtoReflect().Mutable(field).Map()
	for key, value := range maps.All(secrets) {
		values.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	}
	return m
}
