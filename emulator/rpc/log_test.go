package rpc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// text is a log that a test can read while it is written.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.String()
}

// logger leaves out what differs from run to run.
func (x *text) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestOneLineACall(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		request proto.Message
		err     error
		line    string
	}{
		"what was made": {
			createVolume(func(r *csi.CreateVolumeRequest) {}), nil,
			"level=INFO msg=call method=CreateVolume node=n1 name=pvc-1 volume_id=vol-1 code=OK\n",
		},
		"several ids": {
			change(func(r *csi.CreateVolumeGroupSnapshotRequest) {}), nil,
			"level=INFO msg=call method=CreateVolumeGroupSnapshot node=n1 name=group-1 source_volume_ids=vol-1,vol-2 group_snapshot_id=\"\" code=OK\n",
		},
		"a failure": {
			&csi.DeleteSnapshotRequest{SnapshotId: "s"}, fmt.Errorf("delete snapshot s: it is in use: %w", backends.ErrPrecondition),
			"level=WARN msg=call method=DeleteSnapshot node=n1 snapshot_id=s code=FailedPrecondition error=\"delete snapshot s: it is in use\"\n",
		},
		"a fault": {
			change(func(r *csi.ControllerPublishVolumeRequest) {}), fmt.Errorf("open: denied"),
			"level=ERROR msg=call method=ControllerPublishVolume node=n1 volume_id=vol-1 node_id=node-1 code=Internal error=\"open: denied\"\n",
		},
		"a refusal": {
			&csi.DeleteVolumeRequest{}, nil,
			"level=WARN msg=call method=DeleteVolume node=n1 code=InvalidArgument error=\"DeleteVolume: volume_id is required and missing\"\n",
		},
		"a stream": {&csi.GetMetadataDeltaRequest{BaseSnapshotId: "a", TargetSnapshotId: "b"}, nil, "level=INFO msg=call method=GetMetadataDelta node=n1 base_snapshot_id=a target_snapshot_id=b code=OK\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log text
			conn := serve(t, rpc.Options{Log: log.logger(slog.LevelInfo), Node: "n1", Locked: []rpc.Step{
				answer(func(_ context.Context, call *rpc.Call) error {
					if call.Name() == "CreateVolume" {
						call.Reply = &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1"}}
					}
					return c.err
				}),
			}})
			_ = call(t.Context(), conn, c.request)
			require.Equal(t, c.line, log.String())
		})
	}
}

func TestABrokenRequestDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	var log text
	conn := serve(t, rpc.Options{Log: log.logger(slog.LevelInfo)})
	require.Error(t, call(t.Context(), conn, &csi.DeleteVolumeRequest{VolumeId: strings.Repeat("é", 1<<20)}))
	require.Less(t, len(log.String()), 2000)
}

// Tokens of service accounts were leaked by logs of requests more than once
// (CVE-2024-3744), by errors that quote their input, and by mount options.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	var log text
	conn := serve(t, rpc.Options{Log: log.logger(slog.LevelDebug), Locked: []rpc.Step{
		answer(func(_ context.Context, c *rpc.Call) error {
			r := c.Request.(*csi.NodePublishVolumeRequest)
			require.Equal(t, "hunter22", r.GetSecrets()["password"], "the method gets the secret")
			require.Equal(t, "eyJhbGciOi", r.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"])
			return fmt.Errorf("log in with hunter22, %q and eyJhbGciOi: %w", "top\n\"secret\"", backends.ErrUnavailable)
		}),
	}})
	request := publish(func(r *csi.NodePublishVolumeRequest) {
		r.Secrets = map[string]string{"password": "hunter22", "odd": "top\n\"secret\"", "short": "is"}
		r.VolumeContext = map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "eyJhbGciOi", "storage": "fast"}
		r.VolumeCapability.GetMount().MountFlags = []string{"ro", "password=swordfish"}
	})
	err := call(t.Context(), conn, request)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, `log in with ***stripped***, "***stripped***" and ***stripped***`, status.Convert(err).Message())
	for _, hidden := range []string{"hunter22", "eyJhbGciOi", "swordfish", "top"} {
		require.NotContains(t, log.String(), hidden)
	}
	for _, shown := range []string{"call begins", "target_path", "/target", "storage", "fast", "ext4", "***stripped***"} {
		require.Contains(t, log.String(), shown)
	}
}
