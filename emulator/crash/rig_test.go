//go:build linux

package crash_test

import (
	"context"
	"fmt"
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
	// points are those that were reached, by RPC, and starts those at which a
	// start was killed already.
	points *coverage
	starts *starts
	// begun counts the starts; each process has a socket of its own, so that
	// nobody calls it by mistake who knew an earlier one.
	begun int
}

// starts are the points at which a start was killed. It is safe for concurrent
// use.
type starts struct {
	mu     sync.Mutex
	killed []string
}

func (s *starts) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.killed)
}

func (s *starts) add(point string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = append(s.killed, point)
}

// coverage says which points were reached during which RPCs. It is safe for
// concurrent use.
type coverage struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // RPCs by point
}

func newCoverage() *coverage { return &coverage{seen: map[string]map[string]bool{}} }

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
	dir, err := os.MkdirTemp("", "k") //nolint:usetesting // t.TempDir is too long for a socket in it
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() { // else something may be mounted there
			require.NoError(t, os.RemoveAll(dir))
		}
	})
	return newRigIn(t, dir, filepath.Join(dir, "tmp"), backend, points, disabled...)
}

// newRigIn is newRig in a directory that is given. tmp is made.
func newRigIn(t *testing.T, dir, tmp, backend string, points *coverage, disabled ...string) *rig {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Tmpfs, kernel.Ext4, kernel.XFS, kernel.Freeze, kernel.FUSE)
	r := &rig{
		backend: backend, disabled: disabled, points: points, starts: &starts{}, dir: dir,
		state: filepath.Join(dir, "state"), pods: filepath.Join(dir, "pods"), tmp: tmp,
	}
	for _, d := range []string{r.state, r.pods, r.tmp} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	r.start(t)
	t.Cleanup(func() {
		_ = r.conn.Close()
		r.child.kill()
	})
	return r
}

// spec is that of the next process.
func (r *rig) spec() spec {
	r.begun++
	return spec{Backend: r.backend, StateDir: r.state, Socket: filepath.Join(r.dir, fmt.Sprintf("%d.sock", r.begun)), Disabled: r.disabled}
}

// start starts the emulator.
func (r *rig) start(t *testing.T) {
	t.Helper()
	require.True(t, r.tryStart(t, r.spec()))
	r.clients = clientsOf(r.conn)
}

// restart starts the emulator again. Each point of its start that is not among
// r.starts yet kills one.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	for {
		s := r.spec()
		s.KillAtStart, s.Survive = true, r.starts.all()
		if r.tryStart(t, s) {
			r.clients = clientsOf(r.conn)
			return
		}
		r.starts.add(r.child.killed)
	}
}

// tryStart starts a process. It reports false where that killed itself.
func (r *rig) tryStart(t *testing.T, s spec) bool {
	t.Helper()
	c, ready := startChild(t, s, r.tmp)
	r.points.add(startRPC, c.points...)
	r.child = c
	if !ready {
		require.NotEmpty(t, c.killed, "the emulator did not start: %s", c.log.String())
		return false
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.conn = dial(t, s.Socket)
	return true
}

// killingAt is the context of a call that is killed at its n-th point.
func killingAt(ctx context.Context, n int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, killAtKey, strconv.Itoa(n))
}

// call is a call of a scenario.
type call func(context.Context, ...grpc.CallOption) (proto.Message, error)

// crash makes a call that is killed at its n-th point and returns the point; "" if
// the call came to its end before, with its answer.
func (r *rig) crash(t *testing.T, n int, c call) (string, proto.Message) {
	t.Helper()
	resp, passed, err := r.make(killingAt(t.Context(), n), c)
	if status.Code(err) == codes.Unavailable {
		r.child.reap()
		require.NotEmpty(t, r.child.killed, "%v: %s", err, r.child.log.String())
		return r.child.killed, nil
	}
	require.NoError(t, err)
	r.points.add(rpcOf(resp), passed...)
	return "", resp
}

// fail makes a call that fails at its n-th point and returns as crash does.
func (r *rig) fail(t *testing.T, n int, c call) (string, proto.Message) {
	t.Helper()
	resp, passed, err := r.make(metadata.AppendToOutgoingContext(t.Context(), failAtKey, strconv.Itoa(n)), c)
	if len(passed) < n {
		require.NoError(t, err)
		return "", resp
	}
	require.ErrorContains(t, err, errHere.Error(), "after %s", passed[n-1])
	return passed[n-1], nil
}

// make makes a call and returns its answer with the points that it passed.
func (r *rig) make(ctx context.Context, c call) (proto.Message, []string, error) {
	var trailer metadata.MD
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := c(ctx, grpc.Trailer(&trailer))
	return resp, strings.Fields(strings.Join(trailer.Get(pointsKey), " ")), err
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
