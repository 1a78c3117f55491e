// Package backendtest is the contract of package backends as tests, which every
// backend passes.
//
// A backend's test makes a Harness and calls Run. What a backend cannot have is
// a Lack with its reason: the tests of it are shown as skipped for that reason,
// and nothing else is left out.
package backendtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// Lack is something that a backend may not be able to do.
type Lack string

// The behaviours that a Harness may lack. All others are required of every
// backend.
const (
	// Data: what is written to a volume is there as long as the volume, at all
	// of its targets.
	Data Lack = "keeps data"
	// Limit: a file system takes no more bytes than its volume has.
	Limit Lack = "limits file systems to their size"
	// Devices: a raw block volume is a device of exactly its size.
	Devices Lack = "has block devices"
	// ReadOnly: a read-only publication refuses writes, even those of root.
	ReadOnly Lack = "enforces read-only publications"
	// Fence: when a device is detached, I/O on it fails.
	Fence Lack = "fails I/O on a detached volume"
	// Stale: a volume cannot be staged with the publish context of an
	// attachment that has ended.
	Stale Lack = "refuses the publish context of an earlier attachment"
	// OneAttachment: a second attachment with another id is refused.
	OneAttachment Lack = "refuses a second attachment"
	// Live: a volume can be snapshotted and cloned while a workload writes.
	Live Lack = "holds writers still for a snapshot"
	// Growth: a file system grows while it is mounted.
	Growth Lack = "grows mounted file systems"
	// Types: a file system is not staged as one of another type.
	Types Lack = "knows the type of a file system"
	// Twins: a volume and its copy can be staged on one node at once.
	Twins Lack = "stages copies beside their source"
	// Extents: the backend is a backends.ExtentBackend.
	Extents Lack = "knows the extents of snapshots"
	// Loss: bytes that are gone are backends.ErrDataLoss. A Harness that has
	// it sets Lose.
	Loss Lack = "sees that bytes are gone"
	// Persistence: the bytes and devices of an earlier process are found
	// again.
	Persistence Lack = "finds volumes of an earlier process"
	// Ephemeral: the node half is a backends.EphemeralNode.
	Ephemeral Lack = "makes ephemeral volumes"
)

// Filesystem is a type of file system that a backend has.
type Filesystem struct {
	// Type is the name in requests; empty means the backend's default.
	Type string
	// Bytes is the size of the volumes of the tests.
	Bytes int64
	// Lacks are what this type alone cannot, and why.
	Lacks map[Lack]string
}

// Harness is a backend under test.
type Harness struct {
	// Open makes a backend over a store, a directory that exists. A second call
	// with the same directory is a later process. It may skip the test where
	// the machine lacks something.
	Open func(tb testing.TB, store string) backends.Backend
	// Store makes a new store; nil means a plain temporary directory.
	Store func(tb testing.TB) string
	// Filesystems are those that the backend has, at least one.
	Filesystems []Filesystem
	// BlockBytes is the size of the raw block volumes of the tests.
	BlockBytes int64
	// Lacks are what the backend cannot, and why.
	Lacks map[Lack]string
	// Lose takes away the bytes of a volume behind the backend's back.
	Lose func(tb testing.TB, v backends.Volume)
	// Unfinished leaves in the directory of a volume or snapshot what a
	// process leaves that is killed while it makes the bytes.
	Unfinished func(tb testing.TB, dir string)
}

// access is one way to use a volume.
type access struct {
	name   string
	block  bool
	fsType string
	bytes  int64
	lacks  map[Lack]string
}

// accesses are all ways that a harness has.
func (h Harness) accesses() []access {
	all := []access{{name: "block", block: true, bytes: h.BlockBytes}}
	for _, f := range h.Filesystems {
		name := f.Type
		if name == "" {
			name = "default file system"
		}
		all = append(all, access{name: name, fsType: f.Type, bytes: f.Bytes, lacks: f.Lacks})
	}
	return all
}

// needs skips the test, with the reason, if the backend lacks something.
func (h Harness) needs(tb testing.TB, a access, all ...Lack) {
	tb.Helper()
	for _, l := range all {
		if h.lacks(a, l) != "" {
			tb.Skipf("the backend lacks %q: %s", l, h.lacks(a, l))
		}
	}
}

// lacks is the reason why the backend cannot do something, or empty.
func (h Harness) lacks(a access, l Lack) string {
	if reason := h.Lacks[l]; reason != "" {
		return reason
	}
	return a.lacks[l]
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	checkHarness(t, h)
	for name, test := range map[string]func(*testing.T, Harness){
		"plan":                        testPlan,
		"interfaces":                  testInterfaces,
		"create":                      testCreate,
		"lost bytes":                  testLoss,
		"ended context":               testContext,
		"attach":                      testAttach,
		"detach in use":               testFence,
		"life":                        testLife,
		"life of a read-only volume":  testReadOnlyAttachment,
		"paths":                       testPaths,
		"occupied paths":              testOccupied,
		"killed stage":                testKilledStage,
		"file system of another type": testTypes,
		"read-only publication":       testReadOnlyPublication,
		"full file system":            testLimit,
		"device":                      testDevice,
		"grow in use":                 testGrowInUse,
		"grow at rest":                testGrowAtRest,
		"copies":                      testCopies,
		"copies in use":               testLiveCopies,
		"copies beside their source":  testTwins,
		"copies over leftovers":       testUnfinished,
		"extents":                     testExtents,
		"reopen":                      testReopen,
		"reopen without devices":      testReopenAfterReboot,
		"reopen frees what is ours":   testReopenFrees,
		"ephemeral":                   testEphemeral,
		"many at once":                testConcurrency,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// forEachAccess runs a test for every way to use a volume that does not lack
// what the test needs.
func forEachAccess(t *testing.T, h Harness, needs []Lack, test func(t *testing.T, r *rig, a access)) {
	t.Helper()
	for _, a := range h.accesses() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			h.needs(t, a, needs...)
			test(t, newRig(t, h), a)
		})
	}
}

// checkHarness fails the test for a harness that leaves things out by mistake.
func checkHarness(t *testing.T, h Harness) {
	t.Helper()
	known := []Lack{
		Data, Limit, Devices, ReadOnly, Fence, Stale, OneAttachment, Live, Growth, Types, Twins, Extents, Loss, Persistence, Ephemeral,
	}
	require.NotNil(t, h.Open)
	require.NotEmpty(t, h.Filesystems)
	require.Positive(t, h.BlockBytes)
	for _, a := range h.accesses() {
		require.Positive(t, a.bytes, a.name)
		require.Zero(t, a.bytes%backends.Granularity, a.name)
		require.True(t, a.block || a.bytes >= 8<<20 || h.lacks(a, Data) != "", "%s: too small for the data of the tests", a.name)
	}
	lacks := []map[Lack]string{h.Lacks}
	for _, f := range h.Filesystems {
		lacks = append(lacks, f.Lacks)
	}
	for _, m := range lacks {
		for l, reason := range m {
			require.Contains(t, known, l)
			require.NotEmpty(t, reason, "%q needs a reason", l)
		}
	}
	require.Equal(t, h.Lacks[Loss] == "", h.Lose != nil, "Lose goes with %q", Loss)
}

// testInterfaces compares what the backend can with what the harness says that
// it lacks.
func testInterfaces(t *testing.T, h Harness) {
	r := newRig(t, h)
	require.NotEmpty(t, r.backend.Name())
	_, extents := r.backend.(backends.ExtentBackend)
	require.Equal(t, h.Lacks[Extents] == "", extents, "backends.ExtentBackend")
	_, reopens := r.backend.(backends.Reopener)
	require.True(t, reopens || h.Lacks[Persistence] != "", "backends.Reopener")
	_, ephemeral := r.node.(backends.EphemeralNode)
	require.Equal(t, h.Lacks[Ephemeral] == "", ephemeral, "backends.EphemeralNode")
	free, err := r.backend.FreeBytes(t.Context())
	require.NoError(t, err)
	require.Positive(t, free)
}
