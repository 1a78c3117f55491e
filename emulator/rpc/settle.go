package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/journal/redact"
)

// recover keeps a panic from ending the process, and so the service of all
// other volumes: the call gets INTERNAL, and the log the stack. It is the
// outermost step, for panics of the steps; settle catches those of the method.
func (c *chain) recover(ctx context.Context, call *Call) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = c.panicked(ctx, call, reason)
		}
	}()
	return call.Next(ctx)
}

// settle gives a call its final status, for the steps before it to see.
func (c *chain) settle(ctx context.Context, call *Call) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = c.panicked(ctx, call, reason)
		}
		if err != nil {
			call.Reply = nil
		}
	}()
	err = call.Next(ctx)
	if err == nil && call.Stream != nil {
		// The end of a stream says that everything was sent. A method that
		// gave up because the caller did must not say so.
		err = ctx.Err()
	}
	if err != nil {
		return censored(call.Request, Status(err))
	}
	return nil
}

func (c *chain) panicked(ctx context.Context, call *Call, reason any) error {
	if c.o.Log != nil {
		c.o.Log.LogAttrs(ctx, slog.LevelError, "panic in a call",
			slog.String("method", call.method.name),
			slog.String("panic", redact.Text(call.Request, fmt.Sprint(reason))),
			slog.String("stack", string(debug.Stack())))
	}
	return status.Errorf(codes.Internal, "%s: the driver failed by a fault of its own; its log has the details", call.method.name)
}
