package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Call is one CSI call on its way through the chain. It belongs to the
// goroutine that serves the call.
type Call struct {
	// Method is the full method, such as /csi.v1.Controller/CreateVolume.
	Method string
	// Node is Options.Node.
	Node string
	// Request is the message of the caller. Steps must not change it.
	Request proto.Message
	// Reply is what the service method returned; nil before that, after an
	// error, and for streams. A step may replace it after Next.
	Reply any
	// Stream is where a streaming method sends its messages; nil for unary
	// calls. A step may replace it before Next.
	Stream grpc.ServerStream

	method *method
	// rest are the steps that are still to come.
	rest   []Step
	handle func(context.Context, *Call) error
}

// Step is one link of the chain. It does its part, calls c.Next at most once to
// let the rest of the chain serve the call, and returns the error of the call.
// Not to call Next refuses the call with the error returned. Errors that are no
// gRPC status become one by Status.
type Step func(ctx context.Context, c *Call) error

// Name returns the method without its service, such as CreateVolume.
func (c *Call) Name() string { return c.method.name }

// Next runs the rest of the chain.
func (c *Call) Next(ctx context.Context) error {
	if len(c.rest) == 0 {
		return c.handle(ctx, c)
	}
	step := c.rest[0]
	c.rest = c.rest[1:]
	return step(ctx, c)
}
