package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

// Run introduces the node to the array and serves what the array asks of it. It
// connects again, for ever, when the session ends, and returns nil when ctx
// ends. Whatever the node holds for the array is released before Run connects
// again, and before it returns. There is one Run at a time.
func (c *Client) Run(ctx context.Context, local Local) error {
	pause := firstPause
	told := ""
	for {
		welcomed, err := c.meet(ctx, local)
		c.disconnected(err)
		if ctx.Err() != nil {
			return nil
		}
		if welcomed {
			pause, told = firstPause, ""
		}
		// The same reason over and over is told once.
		level := slog.LevelWarn
		if err.Error() == told {
			level = slog.LevelDebug
		}
		told = err.Error()
		c.o.Log.LogAttrs(ctx, level, "no session with the array", slog.String("node", c.o.NodeID), slog.String("error", told))
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

// meet is one session. The error says why it ended.
func (c *Client) meet(ctx context.Context, local Local) (welcomed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.array.Session(ctx)
	if err != nil {
		return false, c.explain(ctx, "begin a session", err)
	}
	v := &visit{ctx: ctx, cancel: cancel, stream: stream, local: local, log: c.o.Log, holds: map[uint64]*held{}}
	defer v.leave()
	err = v.say(&linkpb.FromNode{Kind: &linkpb.FromNode_Hello{Hello: &linkpb.Hello{
		NodeId: c.o.NodeID, Topology: c.o.Topology, StagedVolumeIds: local.Volumes(),
	}}})
	if err != nil && !errors.Is(err, io.EOF) { // EOF: Recv has the reason
		return false, c.explain(ctx, "begin a session", err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = status.FromContextError(context.Canceled).Err()
		}
		if err != nil {
			return welcomed, c.explain(ctx, "keep a session", err)
		}
		if m.GetWelcome() != nil {
			welcomed = true
			c.welcome()
			c.o.Log.LogAttrs(ctx, slog.LevelInfo, "connected to the array",
				slog.String("node", c.o.NodeID), slog.String("array", c.o.Endpoint.String()))
		}
		v.serve(m)
	}
}

func (c *Client) welcome() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		c.connected, c.failure = true, nil
		close(c.ready)
	}
}

func (c *Client) disconnected(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = why
	if c.connected {
		c.connected = false
		c.ready = make(chan struct{})
	}
}
