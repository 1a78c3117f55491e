package emulator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/journal"
)

// remoteCalls are the calls to nodes of other processes, as the array hears of
// them. It is safe for concurrent use.
type remoteCalls struct {
	e  *Emulator
	mu sync.Mutex
	// open are those that have not ended, by their number in the journal.
	open map[uint64]*journal.Open
}

// mostOpen bounds what is kept of calls whose end nobody told, as that of a node
// that was killed.
const mostOpen = 10_000

// BeginCall implements link.Calls.
func (r *remoteCalls) BeginCall(entry *journal.Entry) link.Verdict {
	open := r.e.journal.Adopt(entry)
	v := link.Verdict{Seq: open.Entry().Seq}
	if r.e.checker != nil {
		for _, f := range r.e.checker.Begin(open.Entry()) {
			open.Find(f.String())
			v.Findings = append(v.Findings, f.String())
			v.Refuse = r.e.config.Strict
		}
	}
	if f, fires := r.e.faults.Decide(open.Entry()); fires && !v.Refuse {
		v.FaultID, v.Action, v.Ready = f.ID, f.Action.String(), f.Ready
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= mostOpen {
		clear(r.open)
	}
	r.open[v.Seq] = open
	return v
}

// EndCall implements link.Calls.
func (r *remoteCalls) EndCall(seq uint64, entry *journal.Entry) {
	r.mu.Lock()
	open := r.open[seq]
	delete(r.open, seq)
	r.mu.Unlock()
	if open == nil {
		return
	}
	open.EndAs(entry)
	if r.e.checker != nil {
		r.e.checker.End(open.Entry())
	}
}

// AwaitRelease implements link.Calls.
func (r *remoteCalls) AwaitRelease(ctx context.Context, faultID string) error {
	select {
	case <-r.e.faults.Released(faultID):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellLimit is how long a node waits for the array to hear of a call: a node works
// on while the array is away.
const tellLimit = 2 * time.Second

// consult tells the array of another process of a call, and does what it says.
// Where the array does not answer, the call is served as if nobody had heard of
// it.
func (e *Emulator) consult(ctx context.Context, c *rpc.Call) error {
	open := entryOf(ctx)
	if e.remote == nil || open == nil || c.Node == "" {
		return c.Next(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, tellLimit)
	verdict, err := e.remote.BeginCall(limited, open.Entry())
	cancel()
	if err != nil {
		return c.Next(ctx)
	}
	err = e.obey(ctx, c, verdict)
	// The journal ends the entry with what the caller gets; a copy is told here.
	ended := *open.Entry()
	ended.Done, ended.Duration = true, time.Since(ended.Time)
	if err != nil {
		s := status.Convert(rpc.Status(err))
		ended.Code, ended.Error = s.Code(), s.Message()
	}
	limited, cancel = context.WithTimeout(context.WithoutCancel(ctx), tellLimit)
	defer cancel()
	if tellErr := e.remote.EndCall(limited, verdict.Seq, &ended); tellErr != nil {
		e.log.WarnContext(ctx, "the array does not hear how a call ended", "error", tellErr)
	}
	return err
}

// obey does to a call what the array says.
func (e *Emulator) obey(ctx context.Context, c *rpc.Call, v link.Verdict) error {
	for _, f := range v.Findings {
		entryOf(ctx).Find(f)
	}
	if v.Refuse {
		return status.Error(codes.FailedPrecondition, v.Findings[0])
	}
	if v.Action == "" || v.Ready {
		return c.Next(ctx)
	}
	action, err := fault.ParseAction(v.Action)
	if err != nil {
		return err
	}
	if action.Verb == fault.OK {
		return c.Next(ctx)
	}
	f := fault.Firing{ID: v.FaultID, Action: action}
	if action.Verb == fault.Hang || action.Verb == fault.Sleep {
		released := make(chan struct{})
		f.Released = released
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		e.background.Go(func() {
			// If the array goes away, its faults are gone too.
			_ = e.remote.AwaitRelease(waiting, v.FaultID)
			close(released)
		})
	}
	entryOf(ctx).Fault(f.String())
	return e.perform(ctx, c, f)
}
