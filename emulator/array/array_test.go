package array_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// scripted is a backend of which single calls fail.
type scripted struct {
	*memory.Backend
	fail map[string]error
	// done are the calls that went through.
	done []string
}

var errBroken = errors.New("the store is broken")

func (s *scripted) do(call string) error {
	if err := s.fail[call]; err != nil {
		return err
	}
	s.done = append(s.done, call)
	return nil
}

func (s *scripted) Create(context.Context, backends.Volume) error { return s.do("create") }
func (s *scripted) Delete(context.Context, backends.Volume) error { return s.do("delete") }
func (s *scripted) Grow(context.Context, backends.Volume) error   { return s.do("grow") }
func (s *scripted) Detach(ctx context.Context, v backends.Volume, a backends.Attachment) error {
	if err := s.do("detach"); err != nil {
		return err
	}
	return s.Backend.Detach(ctx, v, a)
}

func (s *scripted) Attach(ctx context.Context, v backends.Volume, a backends.Attachment) (map[string]string, error) {
	if err := s.do("attach"); err != nil {
		return nil, err
	}
	return s.Backend.Attach(ctx, v, a)
}

func (s *scripted) Snapshot(context.Context, backends.Volume, backends.Snapshot) error {
	return s.do("snapshot")
}

func (s *scripted) Usage(context.Context, backends.Volume) (backends.Usage, error) {
	return backends.Usage{AllocatedBytes: 4096}, nil
}

// still is a holder whose releases are counted.
type still struct{ held, released []string }

func (h *still) Hold(_ context.Context, nodeID, _ string, _ bool) (func(context.Context) error, error) {
	h.held = append(h.held, nodeID)
	return func(context.Context) error {
		h.released = append(h.released, nodeID)
		return nil
	}, nil
}

const (
	mib  = 1 << 20
	pool = 64 * mib
)

// bench is an array over a directory, with a backend that can break.
type bench struct {
	*array.Array
	backend *scripted
	store   *record.Dir
	holder  *still
	dir     string
}

func open(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{backend: &scripted{Backend: memory.New(memory.Options{}), fail: map[string]error{}}, holder: &still{}, dir: dir}
	var err error
	b.store, err = record.Open(dir, record.Options{})
	require.NoError(t, err)
	b.Array, err = array.Open(t.Context(), array.Options{
		Backend: b.backend, Store: b.store, Pools: map[string]int64{"default": pool}, DefaultPool: "default", Holder: b.holder,
	})
	require.NoError(t, err)
	for _, id := range []string{"n1", "n2"} {
		require.NoError(t, b.SetNode(t.Context(), array.Node{ID: id}))
	}
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

// restart opens the same directory again, as after a killed process.
func (b *bench) restart(t *testing.T) *bench {
	t.Helper()
	require.NoError(t, b.store.Close())
	return open(t, b.dir)
}

func (b *bench) free(t *testing.T) int64 {
	t.Helper()
	c, err := b.Capacity(t.Context(), backends.Request{Filesystem: true}, nil)
	require.NoError(t, err)
	return c.Available
}

func request(name string) array.CreateRequest {
	return array.CreateRequest{
		Name: name, RequiredBytes: 16 * mib,
		Capabilities: []access.Capability{{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}},
	}
}

func attachment(node string) array.Attachment {
	return array.Attachment{NodeID: node, Capability: access.Capability{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

func (b *bench) requireDirs(t *testing.T, kind string, n int) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(b.dir, kind, "*"))
	require.NoError(t, err)
	require.Len(t, dirs, n)
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	b.backend.fail["create"] = fmt.Errorf("%w: %w", errBroken, backends.ErrExhausted)
	_, err := b.Create(t.Context(), request("v"))
	require.ErrorIs(t, err, backends.ErrExhausted)
	require.EqualValues(t, pool, b.free(t))
	b.requireDirs(t, "volumes", 0)
	delete(b.backend.fail, "create")
	_, err = b.Create(t.Context(), request("v"))
	require.NoError(t, err)
}

func TestCreateThatCouldNotBeUndoneIsUndoneByTheNext(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	b.backend.fail["create"], b.backend.fail["delete"] = errBroken, errBroken
	_, err := b.Create(t.Context(), request("v"))
	require.ErrorIs(t, err, errBroken)
	volumes, _, err := b.List("", 0)
	require.NoError(t, err)
	require.Empty(t, volumes, "what is not whole is not listed")
	clear(b.backend.fail)
	_, err = b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	b.requireDirs(t, "volumes", 1)
	require.EqualValues(t, pool-16*mib, b.free(t))
}

// TestStartUndoesAndFinishes writes what a process killed at each step leaves.
func TestStartUndoesAndFinishes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		left func(*array.Volume)
		want string
		kept int
		free int64
	}{
		"while it was created": {func(v *array.Volume) { v.State = array.Creating }, "delete", 0, pool},
		"while it was deleted": {func(v *array.Volume) { v.State = array.Deleting }, "delete", 0, pool},
		"while it grew":        {func(v *array.Volume) { v.Growing, v.Layout.SizeBytes = true, 32*mib }, "grow", 1, pool - 32*mib},
		"while it was at rest": {func(*array.Volume) {}, "", 1, pool - 16*mib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, t.TempDir())
			v, err := b.Create(t.Context(), request("v"))
			require.NoError(t, err)
			left := *v
			c.left(&left)
			require.NoError(t, b.store.Put(t.Context(), "volumes", v.ID, left))
			b = b.restart(t)
			b.requireDirs(t, "volumes", c.kept)
			require.Equal(t, c.free, b.free(t))
			if c.want != "" {
				require.Equal(t, []string{c.want}, b.backend.done)
			}
			again, err := b.Create(t.Context(), request("v"))
			if name == "while it grew" {
				require.NoError(t, err)
				require.False(t, again.Growing)
				require.EqualValues(t, 32*mib, again.Layout.SizeBytes)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 16*mib, again.Layout.SizeBytes)
		})
	}
}

func TestStartRemovesHalfASnapshot(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	s, err := b.CreateSnapshot(t.Context(), array.SnapshotRequest{Name: "s", SourceID: v.ID})
	require.NoError(t, err)
	require.EqualValues(t, pool-16*mib-4096, b.free(t))
	left := *s
	left.State = array.Creating
	require.NoError(t, b.store.Put(t.Context(), "snapshots", s.ID, left))
	b = b.restart(t)
	b.requireDirs(t, "snapshots", 0)
	require.EqualValues(t, pool-16*mib, b.free(t))
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	b.backend.fail["attach"] = errBroken
	_, err = b.Attach(t.Context(), v.ID, attachment("n1"))
	require.ErrorIs(t, err, errBroken)
	delete(b.backend.fail, "attach")
	_, err = b.Attach(t.Context(), v.ID, attachment("n2"))
	require.NoError(t, err, "the failed attachment is forgotten")
}

func TestDetachIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	_, err = b.Attach(t.Context(), v.ID, attachment("n1"))
	require.NoError(t, err)
	b.backend.fail["detach"] = errBroken
	require.ErrorIs(t, b.Detach(t.Context(), v.ID, "n1"), errBroken)
	_, err = b.Attach(t.Context(), v.ID, attachment("n2"))
	require.ErrorIs(t, err, errBroken, "the device is not released")
	delete(b.backend.fail, "detach")
	require.NoError(t, b.Detach(t.Context(), v.ID, "n1"))
	require.Equal(t, "detach", b.backend.done[len(b.backend.done)-1])
	_, err = b.Attach(t.Context(), v.ID, attachment("n2"))
	require.NoError(t, err)
}

func TestAttachmentsSurviveARestart(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	first, err := b.Attach(t.Context(), v.ID, attachment("n1"))
	require.NoError(t, err)
	b = b.restart(t)
	again, err := b.Attach(t.Context(), v.ID, attachment("n1"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.ErrorIs(t, b.Delete(t.Context(), v.ID), backends.ErrPrecondition)
}

func TestSnapshotHoldsTheNodesAndLetsThemGo(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	_, err = b.Attach(t.Context(), v.ID, attachment("n1"))
	require.NoError(t, err)
	b.backend.fail["snapshot"] = errBroken
	_, err = b.CreateSnapshot(t.Context(), array.SnapshotRequest{Name: "s", SourceID: v.ID})
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, []string{"n1"}, b.holder.held)
	require.Equal(t, b.holder.held, b.holder.released)
	b.requireDirs(t, "snapshots", 0)
	require.EqualValues(t, pool-16*mib, b.free(t))
}

func TestDamagedRecordDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	bad, err := b.Create(t.Context(), request("bad"))
	require.NoError(t, err)
	_, err = b.Create(t.Context(), request("good"))
	require.NoError(t, err)
	require.NoError(t, b.store.Put(t.Context(), "volumes", bad.ID, []string{"not a volume"}))
	b = b.restart(t)
	volumes, _, err := b.List("", 0)
	require.NoError(t, err)
	require.Len(t, volumes, 1)
	require.Equal(t, "good", volumes[0].Name)
	set, err := filepath.Glob(filepath.Join(b.dir, "damaged", "*"))
	require.NoError(t, err)
	require.Len(t, set, 1)
}

// TestRecordsThatAreNotWhatTheySay are set aside with their bytes, whatever they
// say to be.
func TestRecordsThatAreNotWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*array.Volume) any{
		"nothing in it":    func(*array.Volume) any { return map[string]string{} },
		"another id":       func(v *array.Volume) any { v.ID = "vol-other"; return v },
		"an unknown state": func(v *array.Volume) any { v.State = "archived"; return v },
		"no name":          func(v *array.Volume) any { v.Name = ""; return v },
		"a negative size":  func(v *array.Volume) any { v.Layout.SizeBytes = -1; return v },
		"a taken name":     func(v *array.Volume) any { v.Name = "a"; return v },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, t.TempDir())
			first, err := b.Create(t.Context(), request("a"))
			require.NoError(t, err)
			v, err := b.Create(t.Context(), request("b"))
			require.NoError(t, err)
			if v.ID < first.ID {
				// Records load in the order of their ids: the later one loses.
				first, v = v, first
			}
			spoiled := *v
			record := spoil(&spoiled)
			if name == "a taken name" {
				spoiled.Name = first.Name
			}
			require.NoError(t, b.store.Put(t.Context(), "volumes", v.ID, record))
			image := filepath.Join(b.store.Path("volumes", v.ID), "image")
			require.NoError(t, os.WriteFile(image, []byte("bytes"), 0o600))
			b = b.restart(t)
			require.Equal(t, int64(pool-16*mib), b.free(t))
			kept, err := filepath.Glob(filepath.Join(b.dir, "damaged", "*", "image"))
			require.NoError(t, err)
			require.Len(t, kept, 1)
			require.Empty(t, b.backend.done, "nothing is deleted")
		})
	}
}

func TestAStateDirectoryBelongsToOneBackend(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	_, err := array.Open(t.Context(), array.Options{
		Backend: renamed{b.backend}, Store: b.store, Pools: map[string]int64{"default": pool}, DefaultPool: "default",
	})
	require.ErrorIs(t, err, backends.ErrInvalid)
	require.ErrorContains(t, err, "backend memory")
}

type renamed struct{ backends.Backend }

func (renamed) Name() string { return "other" }

func TestWhatIsNoRecordStaysAndStopsNobody(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	_, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	stray := filepath.Join(b.dir, "volumes", "README~")
	require.NoError(t, os.WriteFile(stray, nil, 0o600))
	b = b.restart(t)
	require.FileExists(t, stray)
	volumes, _, err := b.List("", 0)
	require.NoError(t, err)
	require.Len(t, volumes, 1)
}

func TestAFailedGrowthIsFinishedByTheNextCall(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	b.backend.fail["grow"] = fmt.Errorf("%w: %w", errBroken, backends.ErrExhausted)
	_, err = b.Expand(t.Context(), v.ID, 32*mib, 0, true)
	require.ErrorIs(t, err, backends.ErrOutOfRange)
	_, err = b.Expand(t.Context(), v.ID, 32*mib, 0, true)
	require.ErrorIs(t, err, backends.ErrOutOfRange, "still not grown")
	delete(b.backend.fail, "grow")
	grown, err := b.Expand(t.Context(), v.ID, 32*mib, 0, true)
	require.NoError(t, err)
	require.False(t, grown.Growing)
	require.EqualValues(t, 32*mib, grown.Layout.SizeBytes)
	require.EqualValues(t, pool-32*mib, b.free(t))
}

func TestAReaderIsTold(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	v, err := b.Create(t.Context(), request("v"))
	require.NoError(t, err)
	mode := access.Capability{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER}
	writer, err := b.Attach(t.Context(), v.ID, array.Attachment{NodeID: "n1", Capability: mode})
	require.NoError(t, err)
	reader, err := b.Attach(t.Context(), v.ID, array.Attachment{NodeID: "n2", ReadOnly: true, Capability: mode})
	require.NoError(t, err)
	require.NotContains(t, writer, access.ReadOnlyKey)
	require.Equal(t, "true", reader[access.ReadOnlyKey])
	require.Equal(t, v.ID, reader[access.VolumeKey])
}
