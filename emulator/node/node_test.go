package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/node"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var errBroken = errors.New("the device is broken")

// half is a node's half of which single calls fail, and which counts holds.
type half struct {
	backends.Node
	fail      map[string]error
	held      int
	recovered []string
}

func (h *half) Stage(ctx context.Context, r backends.StageRequest) (backends.Staged, error) {
	if err := h.fail["stage"]; err != nil {
		return backends.Staged{}, err
	}
	return h.Node.Stage(ctx, r)
}

func (h *half) Publish(ctx context.Context, s backends.Staged, r backends.PublishRequest) error {
	if err := h.fail["publish"]; err != nil {
		return err
	}
	return h.Node.Publish(ctx, s, r)
}

func (h *half) Hold(context.Context, backends.Staged, backends.Hold) (func() error, error) {
	h.held++
	return func() error { h.held--; return h.fail["release"] }, h.fail["hold"]
}

func (h *half) Recover(_ context.Context, s backends.Staged) error {
	h.recovered = append(h.recovered, s.VolumeID)
	return nil
}

// array knows every volume, or none, or does not answer.
type array struct {
	backend *memory.Backend
	size    error
	detach  error
	local   map[string]bool
	// asked are the methods for which secrets were checked.
	asked []string
}

func (a *array) SizeOf(context.Context, string) (int64, error) { return 1 << 20, a.size }

func (a *array) AttachLocal(ctx context.Context, volumeID, _ string, _ bool) (map[string]string, error) {
	a.local[volumeID] = true
	return a.backend.Attach(ctx, volume(volumeID), backends.Attachment{ID: "csiemu-1"})
}

func (a *array) DetachLocal(_ context.Context, volumeID, _ string) error {
	delete(a.local, volumeID)
	return a.detach
}

func (a *array) Authorize(_ context.Context, volumeID, method string, digests map[string]string) error {
	a.asked = append(a.asked, method)
	return access.Demand{Methods: []string{method}, Key: "token"}.Check(method, digests)
}

func volume(id string) backends.Volume {
	return backends.Volume{ID: id, Layout: backends.Layout{SizeBytes: 1 << 20}}
}

type bench struct {
	*node.Node
	half  *half
	array *array
	dir   string
}

func open(t *testing.T, dir string, edit ...func(*node.Options)) *bench {
	t.Helper()
	backend := memory.New(memory.Options{})
	b := &bench{dir: dir, array: &array{backend: backend, local: map[string]bool{}}}
	store, err := record.Open(filepath.Join(dir, "state"), record.Options{})
	require.NoError(t, err)
	devices := filepath.Join(dir, "devices")
	require.NoError(t, os.MkdirAll(devices, 0o700))
	of, err := backend.Node(backends.NodeConfig{Dir: devices})
	require.NoError(t, err)
	b.half = &half{Node: of, fail: map[string]error{}}
	o := node.Options{
		Name: "n1", Backend: b.half, Array: b.array, Store: store, Attaches: true, Stages: true,
		StageDir: func() (string, error) { return filepath.Join(dir, "stage"), nil },
	}
	for _, f := range edit {
		f(&o)
	}
	b.Node, err = node.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (b *bench) restart(t *testing.T) *bench {
	t.Helper()
	require.NoError(t, b.Close())
	return open(t, b.dir)
}

var mounted = access.Capability{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}

// attached is the stage request of a volume that is attached.
func (b *bench) attached(t *testing.T, id string) node.StageRequest {
	t.Helper()
	publishContext, err := b.array.backend.Attach(t.Context(), volume(id), backends.Attachment{ID: "csiemu-1"})
	require.NoError(t, err)
	path := filepath.Join(b.dir, id)
	require.NoError(t, os.MkdirAll(path, 0o700))
	return node.StageRequest{VolumeID: id, PublishContext: publishContext, Path: path, Capability: mounted}
}

func (b *bench) publication(id string) node.PublishRequest {
	return node.PublishRequest{VolumeID: id, StagingPath: filepath.Join(b.dir, id), Path: filepath.Join(b.dir, id+"-pod"), Capability: mounted}
}

func TestFailedStageIsForgotten(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	b.half.fail["stage"] = errBroken
	require.ErrorIs(t, b.Stage(t.Context(), r), errBroken)
	require.Empty(t, b.Volumes())
	delete(b.half.fail, "stage")
	require.NoError(t, b.Stage(t.Context(), r))
	require.Equal(t, []string{"v"}, b.Volumes())
}

func TestFailedPublishCanBeUnstaged(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	require.NoError(t, b.Stage(t.Context(), r))
	b.half.fail["publish"] = errBroken
	require.ErrorIs(t, b.Publish(t.Context(), b.publication("v")), errBroken)
	require.NoError(t, b.Unstage(t.Context(), "v", r.Path))
	require.Empty(t, b.Volumes())
}

func TestRecordsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	require.NoError(t, b.Stage(t.Context(), r))
	p := b.publication("v")
	require.NoError(t, b.Publish(t.Context(), p))
	b = b.restart(t)
	b.array.size = backends.ErrUnavailable
	stats, err := b.Stats(t.Context(), "v", p.Path)
	require.NoError(t, err, "the array is away")
	require.EqualValues(t, 1<<20, stats.TotalBytes)
	require.ErrorIs(t, b.Unstage(t.Context(), "v", r.Path), backends.ErrPrecondition)
	require.NoError(t, b.Unpublish(t.Context(), "v", p.Path))
	require.NoError(t, b.Unstage(t.Context(), "v", r.Path))
	require.NoDirExists(t, p.Path)
}

// A caller that gives up between what it undoes and its record leaves no record of
// what is gone.
func TestUndoneThingIsForgottenThoughTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r, p := b.attached(t, "v"), b.publication("v")
	require.NoError(t, b.Stage(t.Context(), r))
	require.NoError(t, b.Publish(t.Context(), p))
	giveUpAt := func(name string) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		return step.With(ctx, func(_ context.Context, at string) error {
			if at == name {
				cancel()
			}
			return nil
		})
	}
	require.NoError(t, b.Unpublish(giveUpAt("node.target.unpublished"), "v", p.Path))
	p.Capability.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	require.NoError(t, b.Publish(t.Context(), p), "in another way")
	require.NoError(t, b.Unpublish(t.Context(), "v", p.Path))
	require.NoError(t, b.Unstage(giveUpAt("node.volume.unmounted"), "v", r.Path))
	require.Empty(t, b.Volumes())
}

func TestHoldIsRecordedAndRecovered(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	require.NoError(t, b.Stage(t.Context(), b.attached(t, "v")))
	release, err := b.Hold(t.Context(), "v", false)
	require.NoError(t, err)
	require.Equal(t, 1, b.half.held)
	require.NoError(t, release(t.Context()))
	require.Zero(t, b.half.held)
	b = b.restart(t)
	require.Empty(t, b.half.recovered, "a hold that was released needs no recovery")

	_, err = b.Hold(t.Context(), "v", false)
	require.NoError(t, err)
	b = b.restart(t)
	require.Equal(t, []string{"v"}, b.half.recovered)
	b = b.restart(t)
	require.Empty(t, b.half.recovered, "once is enough")
}

func TestHoldOfAVolumeThatIsNotHere(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	release, err := b.Hold(t.Context(), "v", false)
	require.NoError(t, err)
	require.NoError(t, release(t.Context()))
	require.Zero(t, b.half.held)
}

func TestFailedHoldAndReleaseAreTold(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	require.NoError(t, b.Stage(t.Context(), b.attached(t, "v")))
	b.half.fail["hold"] = errBroken
	_, err := b.Hold(t.Context(), "v", false)
	require.ErrorIs(t, err, errBroken)
	delete(b.half.fail, "hold")
	b.half.fail["release"] = errBroken
	release, err := b.Hold(t.Context(), "v", false)
	require.NoError(t, err)
	require.ErrorIs(t, release(t.Context()), errBroken)
	b = b.restart(t)
	require.Empty(t, b.half.recovered)
}

func TestLocalAttachmentIsGivenBack(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), func(o *node.Options) { o.Attaches = false })
	r := b.attached(t, "v")
	r.PublishContext = nil
	b.half.fail["stage"] = errBroken
	require.ErrorIs(t, b.Stage(t.Context(), r), errBroken)
	require.Empty(t, b.array.local)
	delete(b.half.fail, "stage")
	require.NoError(t, b.Stage(t.Context(), r))
	require.True(t, b.array.local["v"])
	b.array.detach = backends.ErrUnavailable
	require.NoError(t, b.Unstage(t.Context(), "v", r.Path), "the array learns of it later")
	require.Empty(t, b.Volumes())
}

func TestVolumeThatNobodyKnows(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	b.array.size = backends.ErrNotFound
	require.ErrorIs(t, b.Publish(t.Context(), b.publication("v")), backends.ErrNotFound)
	_, err := b.Stats(t.Context(), "v", "/x")
	require.ErrorIs(t, err, backends.ErrNotFound)
	_, err = b.Expand(t.Context(), "v", "/x", 0)
	require.ErrorIs(t, err, backends.ErrNotFound)
	b.array.size = nil
	require.ErrorIs(t, b.Publish(t.Context(), b.publication("v")), backends.ErrPrecondition)
}

func TestContextOfAnotherVolumeIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	r.PublishContext[access.VolumeKey] = "other"
	require.ErrorIs(t, b.Stage(t.Context(), r), backends.ErrPrecondition)
	b.array.size = backends.ErrNotFound
	require.ErrorIs(t, b.Stage(t.Context(), r), backends.ErrNotFound)
	require.Empty(t, b.Volumes())
}

func TestStagingPathIsNoTarget(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	require.NoError(t, b.Stage(t.Context(), r))
	p := b.publication("v")
	p.Path = r.Path
	require.ErrorIs(t, b.Publish(t.Context(), p), backends.ErrInvalid)
	require.NoError(t, b.Unstage(t.Context(), "v", r.Path))
}

// TestVolumeWithADamagedRecord is never said to be unpublished: nobody knows what
// is mounted.
func TestVolumeWithADamagedRecord(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := b.attached(t, "v")
	require.NoError(t, b.Stage(t.Context(), r))
	records, err := filepath.Glob(filepath.Join(b.dir, "state", "volumes", "*", "record.json"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.Truncate(records[0], 0))
	b = b.restart(t)
	require.ErrorIs(t, b.Unpublish(t.Context(), "v", "/x"), backends.ErrPrecondition)
	require.ErrorIs(t, b.Unstage(t.Context(), "v", r.Path), backends.ErrPrecondition)
	require.ErrorIs(t, b.Stage(t.Context(), r), backends.ErrPrecondition)
	require.NoError(t, b.Unpublish(t.Context(), "another", "/x"))
}

// TestHoldAndStageDoNotWaitForEachOtherForEver is a snapshot that has the volume
// locked in the array, while a stage has it locked on the node and waits for the
// array.
func TestHoldAndStageDoNotWaitForEachOtherForEver(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), func(o *node.Options) {
		o.Lock = func(ctx context.Context, _ string) (func(), error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	_, err := b.Hold(t.Context(), "v", false)
	require.ErrorIs(t, err, backends.ErrAborted)
}
