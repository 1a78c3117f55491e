package rpc

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options describe the chain of a server. The zero value serves every method,
// in silence.
type Options struct {
	// Log receives one line a call, and the requests at debug level without
	// what is sensitive; nil is silent.
	Log *slog.Logger
	// Node is the node id that the log names; empty for a controller.
	Node string
	// Strict refuses what would otherwise be a Finding.
	Strict bool
	// StrictLocks answers ABORTED to any second call on a volume, instead of
	// letting different operations wait for each other.
	StrictLocks bool
	// Enabled says whether a method is served; the others are UNIMPLEMENTED.
	// nil serves all.
	Enabled func(fullMethod string) bool
	// Finding is told what is wrong with requests that are served all the
	// same, in the goroutine of the call. nil ignores it.
	Finding func(context.Context, Finding)
	// Locks is the lock space; nil gives the server one of its own.
	Locks *Locks
	// Members are the ids of the snapshots of a group snapshot, which a call that
	// locks the group locks with it, named or not; nil for none. A group's members
	// never change, so they are asked for before the locks are taken.
	Members func(groupSnapshotID string) []string

	// Around are steps that see every call from begin to end, with its final
	// status, also those that are refused: the journal's place.
	Around []Step
	// Checked are steps that see calls whose fields are right, before they wait
	// for locks: the place of the lifecycle checker, and of faults before the
	// effect.
	Checked []Step
	// Locked are steps around the service method, while its locks are held: the
	// place of faults after the effect.
	Locked []Step
}

// chain is the steps of one server.
type chain struct {
	o     Options
	steps []Step
}

func newChain(o Options) *chain {
	if o.Locks == nil {
		o.Locks = NewLocks()
	}
	c := &chain{o: o}
	c.add(c.recover)
	c.add(o.Around...)
	if o.Log != nil {
		c.add(c.log)
	}
	c.add(c.settle)
	if o.Enabled != nil {
		c.add(c.enabled)
	}
	c.add(c.inspect)
	c.add(o.Checked...)
	c.add(c.lock)
	c.add(o.Locked...)
	return c
}

func (c *chain) add(steps ...Step) { c.steps = append(c.steps, steps...) }

// enabled refuses methods that are switched off.
func (c *chain) enabled(ctx context.Context, call *Call) error {
	if !c.o.Enabled(call.Method) {
		return status.Errorf(codes.Unimplemented, "%s is not enabled in this driver", call.method.name)
	}
	return call.Next(ctx)
}

// inspect refuses requests that lack fields or break limits.
func (c *chain) inspect(ctx context.Context, call *Call) error {
	if err := c.wrongWith(ctx, call); err != nil {
		return err
	}
	return call.Next(ctx)
}

// wrongWith is why a request is to be refused, nil if it is not.
func (c *chain) wrongWith(ctx context.Context, call *Call) error {
	in := inspections.Get().(*inspection)
	defer inspections.Put(in)
	*in = inspection{ctx: ctx, method: call.method, strict: c.o.Strict, tell: c.o.Finding, path: in.path[:0]}
	request := call.Request.ProtoReflect()
	if err := call.method.present(in, request); err != nil {
		return err
	}
	call.method.shape.inspect(in, request)
	return in.err
}

// lock runs the rest of the chain with the locks of the call held.
func (c *chain) lock(ctx context.Context, call *Call) error {
	if len(call.method.locks.wants) == 0 {
		return call.Next(ctx)
	}
	release, err := c.o.Locks.acquire(ctx, call.method, call.Request.ProtoReflect(), c.o)
	if err != nil {
		return err
	}
	defer release()
	return call.Next(ctx)
}

// ServerOptions returns the interceptors that run the chain. They may be
// combined with others: the chain runs where it stands among them. Services
// other than CSI's pass through untouched.
func ServerOptions(o Options) []grpc.ServerOption {
	c := newChain(o)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(c.unary),
		grpc.ChainStreamInterceptor(c.stream),
	}
}
