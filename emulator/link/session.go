package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

// aliveWithin is how long a connected node has to answer when another process
// says it is that node. It is long because a busy machine must not look dead;
// processes that die are noticed at once, without it.
const aliveWithin = 5 * time.Second

var (
	errReplaced = errors.New("the node connected anew")
	errOver     = errors.New("the session is over")
)

// session is the array's end of one node's session.
type session struct {
	node   Node
	stream linkpb.Array_SessionServer
	// ctx ends with the session; its cause says why.
	ctx context.Context
	end context.CancelCauseFunc
	// gone is closed when the session is forgotten.
	gone chan struct{}
	// wake has an element when out has.
	wake chan struct{}

	mu      sync.Mutex
	out     []*linkpb.FromArray
	asked   uint64
	answers map[uint64]chan *linkpb.Answer
}

func newSession(stream linkpb.Array_SessionServer, n Node) *session {
	s := &session{
		node: n, stream: stream, gone: make(chan struct{}), wake: make(chan struct{}, 1),
		answers: map[uint64]chan *linkpb.Answer{},
	}
	s.ctx, s.end = context.WithCancelCause(stream.Context())
	return s
}

// admit registers a session. Another one of the same node is replaced if its
// process does not answer any more, else the newcomer is refused.
func (s *Server) admit(ctx context.Context, newcomer *session) error {
	for {
		s.mu.Lock()
		other := s.sessions[newcomer.node.ID]
		if other == nil {
			s.sessions[newcomer.node.ID] = newcomer
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if other.alive(ctx) {
			return fmt.Errorf("begin a session of node %s: another process is connected as this node, and alive: %w", newcomer.node.ID, backends.ErrExists)
		}
		other.end(errReplaced)
		select {
		case <-other.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run is the life of an admitted session.
func (s *Server) run(n *session) error {
	defer close(n.gone)
	defer func() {
		s.mu.Lock()
		delete(s.sessions, n.node.ID)
		s.mu.Unlock()
	}()
	defer n.end(errOver)
	// Both end when this method has returned, if not before: gRPC lets them go
	// only then.
	s.streams.Go(n.receive)
	s.streams.Go(n.write)

	log := s.o.Log.With(slog.String("node", n.node.ID))
	if s.o.Disconnected != nil {
		defer func() { s.o.Disconnected(n.node) }()
	}
	if s.o.Connected != nil {
		if err := s.o.Connected(n.node); err != nil {
			return fmt.Errorf("begin a session of node %s: %w", n.node.ID, err)
		}
	}
	n.send(&linkpb.FromArray{Kind: &linkpb.FromArray_Welcome{Welcome: &linkpb.Welcome{}}})
	log.LogAttrs(n.ctx, slog.LevelInfo, "node connected", slog.Int("staged", len(n.node.Staged)))
	<-n.ctx.Done()
	why := context.Cause(n.ctx)
	log.LogAttrs(n.ctx, slog.LevelInfo, "node disconnected", slog.String("why", why.Error()))
	return fmt.Errorf("keep the session of node %s: %w: %w", n.node.ID, backends.ErrUnavailable, why)
}

// receive takes answers until the stream ends.
func (n *session) receive() {
	for {
		m, err := n.stream.Recv()
		if err != nil {
			n.end(err)
			return
		}
		answer := m.GetAnswer()
		n.mu.Lock()
		waiting := n.answers[answer.GetAsk()]
		delete(n.answers, answer.GetAsk())
		n.mu.Unlock()
		if waiting != nil {
			waiting <- answer
		}
	}
}

// write sends what is queued until the session ends.
func (n *session) write() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.wake:
		}
		n.mu.Lock()
		out := n.out
		n.out = nil
		n.mu.Unlock()
		for _, m := range out {
			if err := n.stream.Send(m); err != nil {
				n.end(err)
				return
			}
		}
	}
}

// send queues a message. It never waits, so that a node that does not read
// cannot hold its caller.
func (n *session) send(m *linkpb.FromArray) {
	n.mu.Lock()
	n.out = append(n.out, m)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// ask sends a question and returns its number and where the answer comes.
func (n *session) ask(m *linkpb.FromArray) (number uint64, answer <-chan *linkpb.Answer) {
	waiting := make(chan *linkpb.Answer, 1)
	n.mu.Lock()
	n.asked++
	m.Ask = n.asked
	n.answers[m.Ask] = waiting
	n.mu.Unlock()
	n.send(m)
	return m.GetAsk(), waiting
}

// forget is for a question whose answer nobody waits for any more.
func (n *session) forget(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.answers, number)
}

// alive reports whether the node answers. An end of ctx counts as yes, for the
// one that connected first.
func (n *session) alive(ctx context.Context) bool {
	late := time.NewTimer(aliveWithin)
	defer late.Stop()
	number, answer := n.ask(&linkpb.FromArray{Kind: &linkpb.FromArray_Ping{Ping: &linkpb.Ping{}}})
	defer n.forget(number)
	select {
	case <-answer:
		return true
	case <-ctx.Done():
		return true
	case <-n.ctx.Done():
		return false
	case <-late.C:
		return false
	}
}
