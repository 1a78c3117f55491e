package link

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

// releaseWithin bounds a release, whether or not the array still waits for it.
// It is as long as a freeze may last at all.
const releaseWithin = 10 * time.Second

// visit is the node's end of one session: what it holds for the array.
type visit struct {
	ctx    context.Context
	cancel context.CancelFunc
	stream linkpb.Array_SessionClient
	local  Local
	log    *slog.Logger
	// work are the goroutines that hold, release and answer.
	work sync.WaitGroup

	sending sync.Mutex
	mu      sync.Mutex
	holds   map[uint64]*held
}

// held is one hold, or the attempt at it.
type held struct {
	volume string
	exact  bool
	ctx    context.Context
	cancel context.CancelFunc
	// done is closed when the attempt is over. release is nil if it failed.
	done    chan struct{}
	release func(context.Context) error
}

// serve does what the array asks, without waiting for it.
func (v *visit) serve(m *linkpb.FromArray) {
	answer := func(do func() error) {
		v.work.Go(func() { v.answer(m.GetAsk(), v.guarded(do)) })
	}
	switch kind := m.GetKind().(type) {
	case *linkpb.FromArray_Welcome:
	case *linkpb.FromArray_Hold:
		h := v.begin(m.GetAsk(), kind.Hold)
		answer(func() error { return v.hold(m.GetAsk(), h) })
	case *linkpb.FromArray_Release:
		h := v.take(kind.Release.GetHold())
		answer(func() error { return h.end() })
	case *linkpb.FromArray_Ping:
		answer(func() error { return nil })
	default:
		answer(func() error {
			return errors.New("the node does not know what the array asks; it is of an older release")
		})
	}
}

func (v *visit) begin(ask uint64, what *linkpb.Hold) *held {
	h := &held{volume: what.GetVolumeId(), exact: what.GetExact(), done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(v.ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds[ask] = h
	return h
}

// take takes a hold out of the visit: whoever has it ends it. It is nil if there
// is none.
func (v *visit) take(ask uint64) *held {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.holds[ask]
	delete(v.holds, ask)
	return h
}

// hold asks the node itself. A failed attempt leaves nothing to release.
func (v *visit) hold(ask uint64, h *held) error {
	defer close(h.done)
	defer func() {
		if h.release == nil {
			v.take(ask)
			h.cancel()
		}
	}()
	var err error
	h.release, err = v.local.Hold(h.ctx, h.volume, h.exact)
	if err != nil {
		h.release = nil
	}
	return err
}

// end gives up an attempt, or releases what is held. The release runs to its end
// even if the session breaks meanwhile.
func (h *held) end() error {
	if h == nil {
		return nil
	}
	h.cancel()
	<-h.done
	if h.release == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), releaseWithin)
	defer cancel()
	return h.release(ctx)
}

// leave ends the session on this side: nothing stays held, and nothing runs.
func (v *visit) leave() {
	v.cancel()
	v.mu.Lock()
	left := v.holds
	v.holds = map[uint64]*held{}
	v.mu.Unlock()
	for _, h := range left {
		v.work.Go(func() {
			err := v.guarded(h.end)
			if h.release == nil {
				return
			}
			v.log.LogAttrs(v.ctx, slog.LevelWarn, "released a volume that an array held which went away",
				slog.String("volume_id", h.volume), slog.Any("error", err))
		})
	}
	v.work.Wait()
}

// guarded keeps a panic of the node from ending its process.
func (v *visit) guarded(do func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			v.log.LogAttrs(v.ctx, slog.LevelError, "panic in what the array asked",
				slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			err = errors.New("the node failed by a fault of its own; its log has the details")
		}
	}()
	return do()
}

// answer tells the array how its question ended. If that fails, the session is
// over, and its reader notices.
func (v *visit) answer(ask uint64, err error) {
	a := &linkpb.Answer{Ask: ask}
	if err != nil {
		s := encode(err)
		a.Code, a.Message = uint32(s.Code()), s.Message()
	}
	_ = v.say(&linkpb.FromNode{Kind: &linkpb.FromNode_Answer{Answer: a}})
}

// say sends a message; a stream takes one at a time.
func (v *visit) say(m *linkpb.FromNode) error {
	v.sending.Lock()
	defer v.sending.Unlock()
	return v.stream.Send(m)
}
