package csitest_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// BenchmarkNew is a double from its start to its first reply, and to its end.
func BenchmarkNew(b *testing.B) {
	var first []time.Duration
	for b.Loop() {
		began := time.Now()
		tb := &printer{}
		d := csitest.New(tb)
		_, err := d.Identity().Probe(b.Context(), &csi.ProbeRequest{})
		first = append(first, time.Since(began))
		require.NoError(b, err)
		tb.end()
		require.False(b, tb.failed, tb.text.String())
	}
	slices.Sort(first)
	b.ReportMetric(float64(first[len(first)/2].Microseconds()), "us-to-first-reply")
}

// BenchmarkJournal compares an RPC over a connection in memory with journal,
// faults and checker with the same one without them, in turns.
func BenchmarkJournal(b *testing.B) {
	with := identity(b, func(s grpc.ServiceRegistrar) {
		e, err := emulator.New(b.Context(), emulator.Config{
			Backend: memory.New(memory.Options{}), Nodes: []emulator.Node{{Name: "n"}}, CheckCaller: true,
		})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, e.Close()) })
		require.NoError(b, e.Register("", s))
	})
	without := identity(b, func(s grpc.ServiceRegistrar) {
		r := rpc.Registrar(s, rpc.Options{})
		csi.RegisterControllerServer(r, answers{})
		csi.RegisterIdentityServer(r, plain{})
	})
	const round = 10
	var took [2]time.Duration
	request := &csi.GetPluginInfoRequest{}
	b.ResetTimer()
	for range b.N {
		for side, client := range []csi.IdentityClient{with, without} {
			began := time.Now()
			for range round {
				if _, err := client.GetPluginInfo(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
			took[side] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N*round), "ns/call")
	b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N*round), "ns/bare-call")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// plain answers as the emulator does, and answers is a controller beside it.
type plain struct {
	csi.UnimplementedIdentityServer
}

func (plain) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "memory.csiemu.dev", VendorVersion: emulator.Version()}, nil
}

type answers struct {
	csi.UnimplementedControllerServer
}

// identity serves in memory what register registers.
func identity(b *testing.B, register func(grpc.ServiceRegistrar)) csi.IdentityClient {
	b.Helper()
	server := grpc.NewServer(grpc.NumStreamWorkers(4))
	register(server)
	listener := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return csi.NewIdentityClient(conn)
}
