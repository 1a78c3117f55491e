package link_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/link/linkpb"
)

func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	var seen events
	o := link.ServerOptions{
		Connected:    func(n link.Node) error { seen.add("+%s %v %v", n.ID, n.Topology, n.Staged); return nil },
		Disconnected: func(n link.Node) { seen.add("-%s", n.ID) },
	}
	s := serve(t, socket(t), o)
	b := client(t, link.ClientOptions{Endpoint: s.endpoint, NodeID: "b", Topology: map[string]string{"zone": "1"}})
	stopB := run(t, b, newLocal("v1", "v2"))
	ready(t, b)
	a := client(t, link.ClientOptions{Endpoint: s.endpoint, NodeID: "a"})
	run(t, a, newLocal())
	ready(t, a)
	require.Equal(t, []link.Node{
		{ID: "a"}, {ID: "b", Topology: map[string]string{"zone": "1"}, Staged: []string{"v1", "v2"}},
	}, s.Nodes())
	stopB()
	require.Eventually(t, func() bool { return len(seen.list()) == 3 }, patience, time.Millisecond)
	require.Equal(t, []string{"+b map[zone:1] [v1 v2]", "+a map[] []", "-b"}, seen.list())
	require.Equal(t, []link.Node{{ID: "a"}}, s.Nodes())
	s.stop()
	require.Equal(t, "-a", seen.list()[3], "Serve returns when all have gone")
	require.Empty(t, s.Nodes())
}

func TestANodeConnectsAgainWhenTheArrayRestarts(t *testing.T) {
	t.Parallel()
	e := socket(t)
	l := newLocal("v1")
	c := client(t, link.ClientOptions{Endpoint: e})
	run(t, c, l) // before there is any array
	for range 3 {
		s := serve(t, e, link.ServerOptions{})
		require.Eventually(t, func() bool { return len(s.Nodes()) == 1 }, patience, time.Millisecond)
		ready(t, c)
		require.NoError(t, exists(c, t.Context(), "v1"))
		release, err := s.Hold(t.Context(), "node-1", "v1", false)
		require.NoError(t, err)
		require.NoError(t, release(t.Context()))
		l.volumes = append(l.volumes, "another")
		s.stop()
		require.Eventually(t, func() bool { return exists(c, t.Context(), "v1") != nil }, patience, time.Millisecond)
	}
}

func TestASecondLiveNodeOfOneNameIsRefused(t *testing.T) {
	t.Parallel()
	s, first := connected(t, newLocal("mine"))
	second := client(t, link.ClientOptions{Endpoint: s.endpoint})
	stop := run(t, second, newLocal("other"))
	require.ErrorIs(t, requireRefused(t, second, "another process is connected as this node"), backends.ErrExists)
	require.Equal(t, []string{"mine"}, s.Nodes()[0].Staged)
	ready(t, first)
	stop()
}

func TestARefusedNodeGetsInWhenTheFirstGoes(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	first := client(t, link.ClientOptions{Endpoint: s.endpoint})
	stop := run(t, first, newLocal("mine"))
	ready(t, first)
	second := client(t, link.ClientOptions{Endpoint: s.endpoint})
	run(t, second, newLocal("other"))
	stop()
	ready(t, second)
	require.Equal(t, []string{"other"}, s.Nodes()[0].Staged)
}

// silentNode connects as node-1 and answers nothing, as a stopped process.
func silentNode(t *testing.T, s *side) linkpb.Array_SessionClient {
	t.Helper()
	stream, err := stranger(t, s.endpoint, credentials.NewTLS(rightSecret(t))).Session(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&linkpb.FromNode{Kind: &linkpb.FromNode_Hello{Hello: &linkpb.Hello{NodeId: "node-1"}}}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, m.GetWelcome())
	return stream
}

func TestADeadSessionIsReplaced(t *testing.T) {
	t.Parallel()
	var seen events
	s := serve(t, socket(t), link.ServerOptions{
		Connected:    func(n link.Node) error { seen.add("+%v", n.Staged); return nil },
		Disconnected: func(n link.Node) { seen.add("-%v", n.Staged) },
	})
	dead := silentNode(t, s)
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	run(t, c, newLocal("v1"))
	ready(t, c)
	require.Equal(t, []string{"+[]", "-[]", "+[v1]"}, seen.list())
	m, err := dead.Recv()
	require.NoError(t, err)
	require.NotNil(t, m.GetPing(), "it was asked")
	_, err = dead.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "the node connected anew")
}

func TestASessionNeedsAnIntroduction(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	for _, first := range []*linkpb.FromNode{
		{}, {Kind: &linkpb.FromNode_Answer{Answer: &linkpb.Answer{}}}, {Kind: &linkpb.FromNode_Hello{Hello: &linkpb.Hello{}}},
	} {
		stream, err := stranger(t, s.endpoint, credentials.NewTLS(rightSecret(t))).Session(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(first))
		_, err = stream.Recv()
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	require.Empty(t, s.Nodes())
}

func TestAPanicInACallbackEndsOnlyThatSession(t *testing.T) {
	t.Parallel()
	var once sync.Once
	s := serve(t, socket(t), link.ServerOptions{Connected: func(link.Node) error { once.Do(func() { panic("first time") }); return nil }})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	run(t, c, newLocal())
	ready(t, c)
}

func TestManyNodes(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	var group sync.WaitGroup
	for i := range 8 {
		c := client(t, link.ClientOptions{Endpoint: s.endpoint, NodeID: fmt.Sprint("node-", i)})
		l := newLocal()
		run(t, c, l)
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if !assert.NoError(t, c.Ready(ctx)) {
				return
			}
			for j := range 10 {
				assert.NoError(t, exists(c, ctx, "v"))
				release, err := s.Hold(ctx, fmt.Sprint("node-", i), fmt.Sprint("v", j), false)
				if assert.NoError(t, err) {
					assert.NoError(t, release(ctx))
				}
			}
			assert.Len(t, l.held, 10)
			assert.Len(t, l.released, 10)
		})
	}
	group.Wait()
	require.Len(t, s.Nodes(), 8)
}
