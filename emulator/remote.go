package emulator

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

// BeginCall implements link.Calls.
func (r *remoteCalls) BeginCall(ctx context.Context, entry *journal.Entry) link.Verdict {
	open := r.e.journal.Adopt(entry)
	v := link.Verdict{Seq: open.Entry().Seq}
	v.Findings, v.Refusal = r.e.judge(ctx, open)
	if v.Refusal == "" {
		if f, fires := r.e.faults.Decide(open.Entry()); fires {
			v.FaultID, v.Action, v.Ready = f.ID, f.Action.String(), f.Ready
			if f.Action.Verb != fault.OK && !f.Ready {
				open.Fault(f.String())
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[v.Seq] = open
	return v
}

// EndCall implements link.Calls.
func (r *remoteCalls) EndCall(seq uint64, entry *journal.Entry) {
	r.mu.Lock()
	open := r.open[seq]
	delete(r.open, seq)
	r.mu.Unlock()
	if open != nil {
		open.EndAs(entry)
		r.learn(open)
	}
}

func (r *remoteCalls) learn(open *journal.Open) {
	if r.e.checker != nil {
		r.e.checker.End(open.Entry())
	}
}

// lose ends the calls of a node that is gone.
func (r *remoteCalls) lose(nodeID string) {
	r.mu.Lock()
	var lost []*journal.Open
	for seq, open := range r.open {
		if open.Entry().Node == nodeID {
			lost = append(lost, open)
			delete(r.open, seq)
		}
	}
	r.mu.Unlock()
	for _, open := range lost {
		open.End(nil, status.Error(codes.Unavailable, "the node went away during the call"))
		r.learn(open)
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

// verdictOf is the key of what the array says to a call, in its context.
type verdictOf struct{}

// tell tells the array of another process of a call, from begin to end. Where the
// array does not answer, the call is served as if nobody had heard of it. It is a
// step around the call.
func (e *Emulator) tell(ctx context.Context, c *rpc.Call) error {
	if e.remote == nil || c.Node == "" {
		return c.Next(ctx)
	}
	return e.tellRemote(ctx, c)
}

func (e *Emulator) tellRemote(ctx context.Context, c *rpc.Call) error {
	limited, cancel := context.WithTimeout(ctx, tellLimit)
	verdict, err := e.remote.BeginCall(limited, entryOf(ctx).Entry())
	cancel()
	if err != nil {
		if e.untold.CompareAndSwap(false, true) {
			e.log.WarnContext(ctx, "the array does not hear of calls; its faults don't fire here", "error", err)
		}
		return c.Next(ctx)
	}
	e.untold.Store(false)
	err = c.Next(context.WithValue(ctx, verdictOf{}, &verdict))

	reply, _ := c.Reply.(proto.Message)
	ended := entryOf(ctx).Ended(reply, err)
	limited, cancel = context.WithTimeout(context.WithoutCancel(ctx), tellLimit)
	defer cancel()
	if tellErr := e.remote.EndCall(limited, verdict.Seq, ended); tellErr != nil {
		e.log.WarnContext(ctx, "the array does not hear how a call ended", "error", tellErr)
	}
	return err
}

// obey does to a call what the array says.
func (e *Emulator) obey(ctx context.Context, c *rpc.Call) error {
	v, told := ctx.Value(verdictOf{}).(*link.Verdict)
	if !told {
		return c.Next(ctx)
	}
	return e.obeyVerdict(ctx, c, v)
}

// obeyVerdict is not part of obey, for the stacks of the calls that have none.
func (e *Emulator) obeyVerdict(ctx context.Context, c *rpc.Call, v *link.Verdict) error {
	for _, f := range v.Findings {
		entryOf(ctx).Find(f)
	}
	if v.Refusal != "" {
		return status.Error(codes.FailedPrecondition, v.Refusal)
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
