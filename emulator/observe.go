package emulator

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/journal"
)

// openCall is the key of the journal's entry in the context of a call.
type openCall struct{}

// entryOf is the entry of the call of ctx.
func entryOf(ctx context.Context) *journal.Open {
	o, _ := ctx.Value(openCall{}).(*journal.Open)
	return o
}

// observe enters a call in the journal, from begin to end. It is the step around
// all others.
func (e *Emulator) observe(ctx context.Context, c *rpc.Call) error {
	open := e.journal.Begin(c.Method, c.Node, c.Request)
	err := c.Next(context.WithValue(ctx, openCall{}, open))
	e.unready.mark(c.Reply)
	if r, ok := c.Request.(*csi.DeleteSnapshotRequest); ok && err == nil {
		e.unready.forget(r.GetSnapshotId())
	}
	reply, _ := c.Reply.(proto.Message)
	open.End(reply, err)
	if e.checker != nil {
		e.checker.End(open.Entry())
	}
	return err
}

// supervise has the checker of the caller look at a call whose fields are right.
// With Config.Strict a call that breaks the lifecycle is refused.
func (e *Emulator) supervise(ctx context.Context, c *rpc.Call) error {
	if _, refusal := e.judge(ctx, entryOf(ctx)); refusal != "" {
		return status.Error(codes.FailedPrecondition, refusal)
	}
	return c.Next(ctx)
}

// judge has the checker look at a call, enters what it found, and returns it. With
// Config.Strict a refusal says why the call is not to be served.
func (e *Emulator) judge(ctx context.Context, open *journal.Open) (findings []string, refusal string) {
	if e.checker == nil {
		return nil, ""
	}
	for _, f := range e.checker.Begin(open.Entry()) {
		open.Find(f.String())
		findings = append(findings, f.String())
		if !e.config.Strict {
			e.log.WarnContext(ctx, "the caller breaks the lifecycle", "rule", string(f.Rule), "what", f.What, "clause", f.Clause())
		} else if refusal == "" {
			refusal = f.String()
		}
	}
	return findings, refusal
}
