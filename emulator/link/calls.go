package link

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
	"github.com/csiemu/csiemu/journal"
)

// Verdict is what the array says to a call to a node.
type Verdict struct {
	// Seq is the number of the call in the array's journal.
	Seq uint64
	// FaultID and Action are the fault that fires, the action in the form of
	// fault.Parse; empty for none. Ready is fault.Firing.Ready.
	FaultID, Action string
	Ready           bool
	// Findings are what the checker of the caller found; Refusal says why the
	// call is not to be served because of them, empty if it is.
	Findings []string
	Refusal  string
}

// Calls is what nodes tell the array of the calls that they serve, so that one
// journal has all of them and one place breaks all.
type Calls interface {
	// BeginCall enters a call and says what is to happen to it.
	BeginCall(ctx context.Context, e *journal.Entry) Verdict
	// EndCall enters how a call ended.
	EndCall(seq uint64, e *journal.Entry)
	// AwaitRelease returns when a fault is removed, or is not there, or ctx ends.
	AwaitRelease(ctx context.Context, faultID string) error
}

// BeginCall tells the array of a call that begins; see Calls.
func (c *Client) BeginCall(ctx context.Context, e *journal.Entry) (Verdict, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return Verdict{}, fmt.Errorf("tell the array of a call: %w", err)
	}
	r, err := c.array.BeginCall(ctx, &linkpb.BeginCallRequest{Entry: data})
	if err != nil {
		return Verdict{}, c.explain(ctx, "tell the array of a call", err)
	}
	return Verdict{r.GetSeq(), r.GetFaultId(), r.GetAction(), r.GetReady(), r.GetFindings(), r.GetRefusal()}, nil
}

// EndCall tells the array how a call ended; see Calls.
func (c *Client) EndCall(ctx context.Context, seq uint64, e *journal.Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("tell the array how a call ended: %w", err)
	}
	_, err = c.array.EndCall(ctx, &linkpb.EndCallRequest{Seq: seq, Entry: data})
	return c.explain(ctx, "tell the array how a call ended", err)
}

// AwaitRelease waits until a fault is removed; see Calls.
func (c *Client) AwaitRelease(ctx context.Context, faultID string) error {
	_, err := c.array.AwaitRelease(ctx, &linkpb.AwaitReleaseRequest{FaultId: faultID})
	return c.explain(ctx, "wait for the end of fault "+faultID, err)
}

// BeginCall implements the service.
func (a *arrayService) BeginCall(ctx context.Context, r *linkpb.BeginCallRequest) (*linkpb.BeginCallResponse, error) {
	var e journal.Entry
	if err := json.Unmarshal(r.GetEntry(), &e); err != nil {
		return nil, fmt.Errorf("read the call that a node tells of: %w: %w", err, backends.ErrInvalid)
	}
	if a.server.o.Calls == nil {
		return &linkpb.BeginCallResponse{}, nil
	}
	v := a.server.o.Calls.BeginCall(ctx, &e)
	return &linkpb.BeginCallResponse{Seq: v.Seq, FaultId: v.FaultID, Action: v.Action, Ready: v.Ready, Findings: v.Findings, Refusal: v.Refusal}, nil
}

// EndCall implements the service.
func (a *arrayService) EndCall(_ context.Context, r *linkpb.EndCallRequest) (*linkpb.EndCallResponse, error) {
	var e journal.Entry
	if err := json.Unmarshal(r.GetEntry(), &e); err != nil {
		return nil, fmt.Errorf("read the call that a node tells of: %w: %w", err, backends.ErrInvalid)
	}
	if a.server.o.Calls != nil {
		a.server.o.Calls.EndCall(r.GetSeq(), &e)
	}
	return &linkpb.EndCallResponse{}, nil
}

// AwaitRelease implements the service.
func (a *arrayService) AwaitRelease(ctx context.Context, r *linkpb.AwaitReleaseRequest) (*linkpb.AwaitReleaseResponse, error) {
	if a.server.o.Calls == nil {
		return &linkpb.AwaitReleaseResponse{}, nil
	}
	return &linkpb.AwaitReleaseResponse{}, a.server.o.Calls.AwaitRelease(ctx, r.GetFaultId())
}
