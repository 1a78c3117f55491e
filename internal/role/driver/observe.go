package driver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal/redact"
)

// observed is a connection whose calls are counted and logged. It stands around
// the connection and not in it as an interceptor, so that connections of others
// are observed in the same way.
type observed struct {
	conn       grpc.ClientConnInterface
	log        *slog.Logger
	operations *operations
	driver     func() string
}

// Invoke is grpc.ClientConnInterface.
func (o *observed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	begin := time.Now()
	err := o.conn.Invoke(ctx, method, args, reply, opts...)
	o.ended(ctx, method, begin, args, reply, err)
	return err
}

// NewStream is grpc.ClientConnInterface. A stream counts when it ends.
func (o *observed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	begin := time.Now()
	stream, err := o.conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		o.ended(ctx, method, begin, nil, nil, err)
		return nil, err
	}
	s := &observedStream{ClientStream: stream}
	s.end = func(err error) {
		s.once.Do(func() { o.ended(ctx, method, begin, s.request, nil, err) })
	}
	return s, nil
}

func (o *observed) ended(ctx context.Context, method string, begin time.Time, request, reply any, err error) {
	took := time.Since(begin)
	o.operations.observe(ctx, o.driver(), method, took, err)
	if !o.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{slog.String("method", method), slog.Duration("took", took)}
	if text := message(request); text != "" {
		attrs = append(attrs, slog.String("request", text))
	}
	if err == nil {
		attrs = append(attrs, slog.String("reply", message(reply)))
	} else {
		m, _ := request.(proto.Message)
		attrs = append(attrs, slog.String("error", redact.Text(m, err.Error())))
	}
	o.log.LogAttrs(ctx, slog.LevelDebug, "called the CSI driver", attrs...)
}

// message is a message as JSON, without secrets.
func message(m any) string {
	msg, is := m.(proto.Message)
	if !is {
		return ""
	}
	text, err := protojson.Marshal(redact.Message(msg))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// observedStream is a stream of one request and several replies, as CSI has them.
type observedStream struct {
	grpc.ClientStream
	request any
	once    sync.Once
	end     func(error)
}

// SendMsg is grpc.ClientStream.
func (s *observedStream) SendMsg(m any) error {
	if s.request == nil {
		s.request = m
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg is grpc.ClientStream.
func (s *observedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		s.end(nil)
	default:
		s.end(err)
	}
	return err
}
