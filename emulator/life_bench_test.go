//go:build linux

package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/blockio"
	"github.com/csiemu/csiemu/internal/ceiling"
	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// lifeBytes is the size of a volume: 64 MiB, as the reference driver was
// measured with.
const lifeBytes = 64 * mib

// BenchmarkLife walks volumes through their whole lives over a unix socket:
// create, attach, stage, publish, unpublish, unstage, detach, delete. Beside it,
// in turns, go the bare system calls and as many empty RPCs (internal/ceiling):
// the ratio says which part of what is possible is reached.
func BenchmarkLife(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	for _, store := range []struct {
		name string
		dir  func(testing.TB) string
		sync bool
	}{
		{"tmpfs", testenv.TmpfsDir, false},
		{"disk", func(tb testing.TB) string { return tb.TempDir() }, false},
		{"disk-sync", func(tb testing.TB) string { return tb.TempDir() }, true},
	} {
		for _, kind := range []struct {
			name string
			kind ceiling.Kind
		}{{"ext4", ceiling.Ext4}, {"block", ceiling.Block}, {"tmpfs", ceiling.Tmpfs}} {
			for _, callers := range []int{1, 8, 32} {
				b.Run(fmt.Sprintf("store=%s/volume=%s/callers=%d", store.name, kind.name, callers), func(b *testing.B) {
					ours := newLives(b, kind.kind, store.dir(b), store.sync)
					bare := newCeiling(b, kind.kind, store.dir(b), store.sync)
					compare(b, callers, ours.live, bare.Live)
				})
			}
		}
	}
}

// round is how many lives one side has before the other has its turn, so that
// both see the same machine.
const round = 100

// compare gives both sides b.N lives each, spread over callers, and reports
// their lives a second (ours, and those of what is beside) and the ratio of the
// two.
func compare(b *testing.B, callers int, ours, bare func(ctx context.Context, name string) error) {
	b.Helper()
	// One life first, so that no first use is measured.
	require.NoError(b, errors.Join(ours(b.Context(), "first"), bare(b.Context(), "first")))
	var took [2]time.Duration
	b.ResetTimer()
	for done := 0; done < b.N; done += round {
		for side, live := range []func(context.Context, string) error{ours, bare} {
			begin := time.Now()
			run(b, callers, done, min(round, b.N-done), live)
			took[side] += time.Since(begin)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took[0].Seconds(), "lives/s")
	b.ReportMetric(float64(b.N)/took[1].Seconds(), "beside/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// run spreads n lives over callers.
func run(b *testing.B, callers, from, n int, live func(ctx context.Context, name string) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := live(b.Context(), fmt.Sprintf("v%d", int64(from)+i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// lives drives a driver.
type lives struct {
	clients
	targets    string
	node       string
	capability *csi.VolumeCapability
	attaches   bool
}

func newLives(b *testing.B, kind ceiling.Kind, store string, sync bool) *lives {
	b.Helper()
	var backend backends.Backend
	var err error
	l := &lives{targets: testenv.TmpfsDir(b), capability: mountCapability("ext4"), attaches: true}
	switch kind {
	case ceiling.Tmpfs:
		l.capability, l.attaches = mountCapability(""), false
		backend, err = tmpfs.New(tmpfs.Options{Dir: store})
	case ceiling.Block:
		l.capability = blockCapability()
		fallthrough
	default:
		backend, err = loop.New(loop.Options{Dir: store, Sync: sync})
	}
	require.NoError(b, err)
	e, err := emulator.New(b.Context(), emulator.Config{
		Backend: backend, StateDir: store, Sync: sync, Nodes: []emulator.Node{{Name: "node-1"}},
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	server := grpc.NewServer()
	require.NoError(b, e.Register("", server))
	conn := serveBench(b, server)
	l.clients, l.node = newClients(conn), "node-1"
	return l
}

// serveBench serves at a unix socket until the benchmark ends.
func serveBench(b *testing.B, server *grpc.Server) *grpc.ClientConn {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "s")
	var lc net.ListenConfig
	listener, err := lc.Listen(b.Context(), "unix", socket)
	require.NoError(b, err)
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	return dialBench(b, "unix://"+socket)
}

func dialBench(b *testing.B, endpoint string) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (l *lives) live(ctx context.Context, name string) error {
	created, err := l.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{l.capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: lifeBytes},
	})
	if err != nil {
		return err
	}
	id, staging, target := created.GetVolume().GetVolumeId(), filepath.Join(l.targets, name+"-s"), filepath.Join(l.targets, name+"-t")
	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	var publishContext map[string]string
	if l.attaches {
		attached, err := l.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: l.node, VolumeCapability: l.capability})
		if err != nil {
			return err
		}
		publishContext = attached.GetPublishContext()
	}
	if _, err := l.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, VolumeCapability: l.capability, PublishContext: publishContext,
	}); err != nil {
		return err
	}
	if _, err := l.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: l.capability, PublishContext: publishContext,
	}); err != nil {
		return err
	}
	if _, err := l.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target}); err != nil {
		return err
	}
	if _, err := l.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging}); err != nil {
		return err
	}
	if l.attaches {
		if _, err := l.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: l.node}); err != nil {
			return err
		}
	}
	if _, err := l.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		return err
	}
	return os.Remove(staging)
}

// emptyIdentity answers with nothing: the price of an RPC alone.
type emptyIdentity struct {
	csi.UnimplementedIdentityServer
}

func (emptyIdentity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func newCeiling(b *testing.B, kind ceiling.Kind, store string, sync bool) *ceiling.Lives {
	b.Helper()
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, emptyIdentity{})
	client := csi.NewIdentityClient(serveBench(b, server))
	l, err := ceiling.New(ceiling.Config{
		Kind: kind, Store: store, Targets: testenv.TmpfsDir(b), SizeBytes: lifeBytes, Sync: sync, Blocks: emptyExt4(b),
		Record: bytes.Repeat([]byte("r"), 700),
		Call: func(ctx context.Context) error {
			_, err := client.Probe(ctx, &csi.ProbeRequest{})
			return err
		},
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	return l
}

// emptyExt4 returns the blocks that a freshly formatted volume has.
func emptyExt4(b *testing.B) []ceiling.Block4K {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "template"))
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	require.NoError(b, f.Truncate(lifeBytes))
	_, err = filesystem.NewMaker(filesystem.Options{}).Format(b.Context(), f.Name(), filesystem.Ext4, lifeBytes, false)
	require.NoError(b, err)
	var blocks []ceiling.Block4K
	for e, err := range blockio.Extents(b.Context(), f, 0) {
		require.NoError(b, err)
		data := make([]byte, e.Length)
		_, err := io.ReadFull(io.NewSectionReader(f, e.Offset, e.Length), data)
		require.NoError(b, err)
		blocks = append(blocks, ceiling.Block4K{Offset: e.Offset, Data: data})
	}
	return blocks
}
