//go:build linux

package crash_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

const mib = 1 << 20

// rig is a state directory, the orchestrator's directories, and the process that
// serves them now.
type rig struct {
	clients
	conn     *grpc.ClientConn
	backend  string
	disabled []string
	// dir holds all others: state is the emulator's, pods the orchestrator's,
	// tmp is for temporary files of the emulator.
	dir, state, pods, tmp string
	child                 *child
	// points are those that were reached, by RPC.
	points *coverage
	// survive are the points at which a start was killed already.
	survive []string
}

// coverage says which points were reached during which RPCs. It is safe for
// concurrent use.
type coverage struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // RPCs by point
}

func (c *coverage) add(rpc string, points ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range points {
		if c.seen[p] == nil {
			c.seen[p] = map[string]bool{}
		}
		c.seen[p][rpc] = true
	}
}

// newRig starts an emulator on an empty state directory.
func newRig(t *testing.T, backend string, points *coverage, disabled ...string) *rig {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Tmpfs, kernel.Ext4, kernel.Freeze)
	dir, err := os.MkdirTemp("", "k") //nolint:usetesting // t.TempDir is too long for a socket in it
	require.NoError(t, err)
	r := &rig{
		backend: backend, disabled: disabled, points: points, dir: dir,
		state: filepath.Join(dir, "state"), pods: filepath.Join(dir, "pods"), tmp: filepath.Join(dir, "tmp"),
	}
	t.Cleanup(func() {
		if !t.Failed() { // else something may be mounted there
			require.NoError(t, os.RemoveAll(dir))
		}
	})
	for _, d := range []string{r.state, r.pods, r.tmp} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	r.start(t)
	t.Cleanup(func() { _ = r.conn.Close(); r.child.kill() })
	return r
}

func (r *rig) spec() spec {
	return spec{Backend: r.backend, StateDir: r.state, Socket: filepath.Join(r.dir, "csi.sock"), Disabled: r.disabled}
}

// start starts the emulator.
func (r *rig) start(t *testing.T) {
	t.Helper()
	c, ready := startChild(t, r.spec(), r.tmp)
	require.True(t, ready)
	r.points.add(startRPC, c.points...)
	r.serves(t, c)
}

// serves makes a process that serves the one that is called.
func (r *rig) serves(t *testing.T, c *child) {
	t.Helper()
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.child = c
	r.clients, r.conn = dial(t, r.spec().Socket)
}

// restart starts the emulator again. Each point of its start at which no start
// of this rig was killed yet kills one.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	for {
		s := r.spec()
		s.KillAtStart, s.Survive = true, r.survive
		c, ready := startChild(t, s, r.tmp)
		r.points.add(startRPC, c.points...)
		if ready {
			r.serves(t, c)
			return
		}
		r.survive = append(r.survive, c.killed)
	}
}

// killingAt is the context of a call that is killed at its n-th point.
func killingAt(ctx context.Context, n int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, killAtKey, strconv.Itoa(n))
}

// crash makes a call that is killed at its n-th point and returns the point; "" if
// the call came to its end before, with its answer.
func (r *rig) crash(t *testing.T, n int, call func(context.Context, ...grpc.CallOption) (proto.Message, error)) (string, proto.Message) {
	t.Helper()
	var trailer metadata.MD
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := call(killingAt(ctx, n), grpc.Trailer(&trailer))
	if status.Code(err) == codes.Unavailable {
		r.child.reap()
		require.NotEmpty(t, r.child.killed, "%v: %s", err, r.child.log.String())
		return r.child.killed, nil
	}
	require.NoError(t, err)
	r.points.add(rpcOf(resp), strings.Fields(strings.Join(trailer.Get(pointsKey), " "))...)
	return "", resp
}

// rpcOf is the name of the RPC that has an answer.
func rpcOf(resp proto.Message) string {
	return strings.TrimSuffix(string(resp.ProtoReflect().Descriptor().Name()), "Response")
}

// free is what the default pool has left.
func (r *rig) free(t *testing.T) int64 {
	t.Helper()
	resp, err := r.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	require.NoError(t, err)
	return resp.GetAvailableCapacity()
}

// requireOnly asserts that the volumes and snapshots with these ids are there,
// on disk and in lists, and no others.
func (r *rig) requireOnly(t *testing.T, have records, volumes, snapshots []string) {
	t.Helper()
	list, err := r.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	var listed, onDisk []string
	for _, e := range list.GetEntries() {
		listed = append(listed, e.GetVolume().GetVolumeId())
	}
	for id := range have.volumes {
		onDisk = append(onDisk, id)
	}
	require.ElementsMatch(t, volumes, listed)
	require.ElementsMatch(t, volumes, onDisk)
	cuts, err := r.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	require.NoError(t, err)
	listed, onDisk = nil, nil
	for _, e := range cuts.GetEntries() {
		listed = append(listed, e.GetSnapshot().GetSnapshotId())
	}
	for id := range have.snapshots {
		onDisk = append(onDisk, id)
	}
	require.ElementsMatch(t, snapshots, listed)
	require.ElementsMatch(t, snapshots, onDisk)
}

// names sorts the points of a coverage.
func (c *coverage) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for p := range c.seen {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}
