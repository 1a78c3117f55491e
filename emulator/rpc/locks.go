package rpc

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Locks is a lock space: the calls under way on volumes, snapshots and groups.
// Each controller and each node has one. It is safe for concurrent use, and
// what is idle takes no memory. NewLocks makes one.
//
// The same operation on the same thing is refused with ABORTED while the first
// is in flight, or waits. Different operations on one thing wait for each other
// in the order in which they came. When the caller's deadline ends the wait, or
// the caller goes away, the answer is ABORTED too: the specification ("Error
// Scheme") has it for an operation pending on the volume, and unlike
// DEADLINE_EXCEEDED it says that this call had no effect. The caller's own gRPC
// library has answered it by then; the log, the journal and proxies see it.
type Locks struct {
	keyed Keyed

	mu      sync.Mutex
	pending map[operation]struct{}
}

// operation identifies calls that are the same.
type operation struct{ method, first, second string }

// NewLocks returns an empty lock space.
func NewLocks() *Locks { return &Locks{pending: map[operation]struct{}{}} }

// Idle reports whether no call holds or waits for a lock.
func (l *Locks) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) == 0 && l.keyed.Len() == 0
}

// Volume waits for a volume alone, as a call of its own would, for work that
// comes by another way than a CSI call: the hold that the array asks of a node.
// It waits under StrictLocks too. The error is a status, ABORTED.
func (l *Locks) Volume(ctx context.Context, id string) (unlock func(), err error) {
	key := lockKey{kind: volume, id: id}
	unlock, err = l.keyed.Lock(ctx, key.text())
	if err != nil {
		return nil, refusal("hold", key, err)
	}
	return unlock, nil
}

// acquire takes what a request wants, waiting as long as ctx allows, or not at
// all with StrictLocks. release gives everything back.
func (l *Locks) acquire(ctx context.Context, m *method, request protoreflect.Message, o Options) (release func(), err error) {
	keys := m.locks.keys(request, o.Members)
	op := operation{method: m.name}
	for i, field := range m.locks.same {
		if text := request.Get(field).String(); i == 0 {
			op.first = text
		} else {
			op.second = text
		}
	}
	if !l.begin(op) {
		return nil, status.Errorf(codes.Aborted, "%s: an operation for %s %q is under way: the same call is being served", m.name, m.locks.wants[0].kind, op.first)
	}
	unlocks := make([]func(), 0, len(keys))
	release = func() {
		for i := len(unlocks) - 1; i >= 0; i-- {
			unlocks[i]()
		}
		l.end(op)
	}
	for _, key := range keys {
		unlock, err := l.lock(ctx, key, o.StrictLocks)
		if err != nil {
			release()
			return nil, refusal(m.name, key, err)
		}
		unlocks = append(unlocks, unlock)
	}
	return release, nil
}

// errStrict is why a strict lock space refuses.
var errStrict = errors.New("calls on it do not queue")

func (l *Locks) lock(ctx context.Context, key lockKey, strict bool) (func(), error) {
	switch {
	case !strict && key.shared:
		return l.keyed.RLock(ctx, key.text())
	case !strict:
		return l.keyed.Lock(ctx, key.text())
	}
	try := l.keyed.TryLock
	if key.shared {
		try = l.keyed.TryRLock
	}
	unlock, ok := try(key.text())
	if !ok {
		return nil, errStrict
	}
	return unlock, nil
}

func refusal(method string, key lockKey, reason error) error {
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(reason, ended) {
			reason = ended
		}
	}
	return status.Errorf(codes.Aborted, "%s: an operation for %s %q is under way: %v", method, key.kind, key.id, reason)
}

func (l *Locks) begin(op operation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, under := l.pending[op]; under {
		return false
	}
	l.pending[op] = struct{}{}
	return true
}

func (l *Locks) end(op operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, op)
}
