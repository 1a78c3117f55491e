package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// both runs a test over a server made with ServerOptions, and over one whose
// services were registered through Registrar.
func both(t *testing.T, test func(t *testing.T, serve func(rpc.Options) *grpc.ClientConn)) {
	t.Run("ServerOptions", func(t *testing.T) {
		t.Parallel()
		test(t, func(o rpc.Options) *grpc.ClientConn { return serve(t, o) })
	})
	t.Run("Registrar", func(t *testing.T) {
		t.Parallel()
		test(t, func(o rpc.Options) *grpc.ClientConn {
			s := grpc.NewServer()
			register(rpc.Registrar(s, o), &services{})
			return connect(t, s)
		})
	})
}

func TestAPanicIsInternalAndTheServerLives(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(rpc.Options) *grpc.ClientConn) {
		places := map[string]func(*rpc.Options, rpc.Step){
			"around": func(o *rpc.Options, s rpc.Step) { o.Around = []rpc.Step{s} },
			"before": func(o *rpc.Options, s rpc.Step) { o.Checked = []rpc.Step{s} },
			"method": func(o *rpc.Options, s rpc.Step) { o.Locked = []rpc.Step{s} },
		}
		for name, place := range places {
			var log text
			o := rpc.Options{Log: log.logger(slog.LevelInfo)}
			place(&o, func(context.Context, *rpc.Call) error { panic("the array is on fire, said hunter22") })
			conn := serve(o)
			for _, request := range []proto.Message{
				&csi.DeleteVolumeRequest{VolumeId: "v", Secrets: map[string]string{"password": "hunter22"}},
				&csi.GetMetadataAllocatedRequest{SnapshotId: "s"},
				&csi.DeleteVolumeRequest{VolumeId: "v"}, // its lock is free
			} {
				err := call(t.Context(), conn, request)
				require.Equal(t, codes.Internal, status.Code(err), name)
				require.NotContains(t, err.Error(), "fire")
			}
			require.Contains(t, log.String(), "the array is on fire, said ***stripped***")
			require.Contains(t, log.String(), "chain_test.go", "the stack")
		}
	})
}

func TestStepsRunInTheOrderOfTheDesign(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(rpc.Options) *grpc.ClientConn) {
		var mu sync.Mutex
		var order []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprintf(format, args...))
		}
		step := func(name string) rpc.Step {
			return func(ctx context.Context, c *rpc.Call) error {
				note("%s: %s on %s", name, c.Name(), c.Node)
				err := c.Next(ctx)
				note("%s ends: %s", name, status.Code(err))
				return err
			}
		}
		conn := serve(rpc.Options{
			Node:    "n1",
			Around:  []rpc.Step{step("journal"), step("second journal")},
			Enabled: func(full string) bool { note("enabled? %s", full); return !strings.HasSuffix(full, "Unstage") },
			Finding: func(_ context.Context, f rpc.Finding) { note("finding: %s", f) },
			Checked: []rpc.Step{step("checked")},
			Locked: []rpc.Step{step("locked"), answer(func(context.Context, *rpc.Call) error {
				note("method")
				return errors.New("failed")
			})},
		})
		request := change(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = "x" })
		require.Equal(t, codes.Internal, status.Code(call(t.Context(), conn, request)))
		require.Equal(t, []string{
			"journal: NodeExpandVolume on n1", "second journal: NodeExpandVolume on n1",
			"enabled? /csi.v1.Node/NodeExpandVolume",
			`finding: volume_path must be an absolute path: check path "x": is not absolute`,
			"checked: NodeExpandVolume on n1", "locked: NodeExpandVolume on n1", "method",
			"locked ends: Unknown", "checked ends: Unknown", // no status yet
			"second journal ends: Internal", "journal ends: Internal",
		}, order)

		order = nil
		require.Equal(t, codes.InvalidArgument, status.Code(call(t.Context(), conn, &csi.NodeExpandVolumeRequest{})))
		require.Equal(t, []string{
			"journal: NodeExpandVolume on n1", "second journal: NodeExpandVolume on n1", "enabled? /csi.v1.Node/NodeExpandVolume",
			"second journal ends: InvalidArgument", "journal ends: InvalidArgument",
		}, order)
	})
}

func TestDisabledMethodsAreUnimplemented(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(rpc.Options) *grpc.ClientConn) {
		conn := serve(rpc.Options{
			Enabled: func(full string) bool { return full != "/csi.v1.Controller/ListVolumes" },
			Locked:  []rpc.Step{answer(func(context.Context, *rpc.Call) error { return nil })},
		})
		err := call(t.Context(), conn, &csi.ListVolumesRequest{MaxEntries: -1})
		require.Equal(t, codes.Unimplemented, status.Code(err), "before its fields are looked at")
		require.Contains(t, err.Error(), "ListVolumes is not enabled")
		require.NoError(t, call(t.Context(), conn, &csi.ListSnapshotsRequest{}))
	})
}

func TestRepliesComeThrough(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(rpc.Options) *grpc.ClientConn) {
		conn := serve(rpc.Options{Locked: []rpc.Step{func(_ context.Context, c *rpc.Call) error {
			if c.Stream != nil {
				return c.Stream.SendMsg(&csi.GetMetadataDeltaResponse{VolumeCapacityBytes: 7})
			}
			c.Reply = &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: c.Request.(*csi.CreateVolumeRequest).GetName() + "-id"}}
			return nil
		}}})
		r, err := reply(t.Context(), conn, &csi.CreateVolumeRequest{Name: "pvc", VolumeCapabilities: capabilities()})
		require.NoError(t, err)
		require.Equal(t, "pvc-id", r.(*csi.CreateVolumeResponse).GetVolume().GetVolumeId())
		r, err = reply(t.Context(), conn, &csi.GetMetadataDeltaRequest{BaseSnapshotId: "a", TargetSnapshotId: "b"})
		require.NoError(t, err)
		require.Equal(t, int64(7), r.(*csi.GetMetadataDeltaResponse).GetVolumeCapacityBytes())
	})
}

// metadata is a streaming service method that sends what it was asked.
type metadata struct {
	services
	t *testing.T
}

type ctxKey struct{}

func (m *metadata) GetMetadataAllocated(r *csi.GetMetadataAllocatedRequest, s csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	require.Equal(m.t, "from a step", s.Context().Value(ctxKey{}))
	for range r.GetMaxResults() {
		if err := s.Send(&csi.GetMetadataAllocatedResponse{VolumeCapacityBytes: r.GetStartingOffset()}); err != nil {
			return err
		}
	}
	if r.GetSnapshotId() == "gone" {
		<-s.Context().Done()
		return nil // as if all were sent
	}
	return nil
}

func TestStreamsPassTheSameChain(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := grpc.NewServer(rpc.ServerOptions(rpc.Options{
		Around: []rpc.Step{func(ctx context.Context, c *rpc.Call) error {
			err := c.Next(context.WithValue(ctx, ctxKey{}, "from a step"))
			ended <- err
			return err
		}},
	})...)
	csi.RegisterSnapshotMetadataServer(s, &metadata{t: t})
	client := csi.NewSnapshotMetadataClient(connect(t, s))

	stream, err := client.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: "s", StartingOffset: 5, MaxResults: 3})
	require.NoError(t, err)
	for range 3 {
		r, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, int64(5), r.GetVolumeCapacityBytes())
	}
	_, err = stream.Recv()
	require.ErrorContains(t, err, "EOF")
	require.NoError(t, <-ended)

	stream, err = client.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, codes.InvalidArgument, status.Code(<-ended))

	// The end of a stream means that everything was sent.
	ctx, cancel := context.WithCancel(t.Context())
	stream, err = client.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{SnapshotId: "gone", MaxResults: 1})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-ended))
}

func TestOtherServicesPassUntouched(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer(rpc.ServerOptions(rpc.Options{Enabled: func(string) bool { return false }})...)
	healthpb.RegisterHealthServer(s, health.NewServer())
	client := healthpb.NewHealthClient(connect(t, s))
	r, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, r.GetStatus())
	watch, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
}

func TestRegistrarRunsBehindTheServersInterceptors(t *testing.T) {
	t.Parallel()
	seen := make(chan codes.Code, 1)
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		r, err := next(ctx, request)
		seen <- status.Code(err)
		return r, err
	}))
	register(rpc.Registrar(s, rpc.Options{}), &services{})
	conn := connect(t, s)
	require.Equal(t, codes.InvalidArgument, status.Code(call(t.Context(), conn, &csi.DeleteVolumeRequest{})))
	require.Equal(t, codes.InvalidArgument, <-seen)
}

func TestUnknownMethodsAreUnimplemented(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{})
	err := conn.Invoke(t.Context(), "/csi.v1.Controller/Frobnicate", &csi.ProbeRequest{}, &csi.ProbeResponse{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
}
