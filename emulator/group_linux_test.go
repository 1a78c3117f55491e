package emulator_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

// numberWrites writes 1, 2, 3 … to the files in turn, each flushed before the
// next, until ctx ends. last is the newest that was flushed.
func numberWrites(ctx context.Context, files []*os.File, last *atomic.Uint64) error {
	for n := uint64(1); ctx.Err() == nil; n++ {
		f := files[int(n)%len(files)]
		var record [8]byte
		binary.LittleEndian.PutUint64(record[:], n)
		if _, err := f.Write(record[:]); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		last.Store(n)
	}
	return nil
}

// newestNumber is the last number in a file.
func newestNumber(t *testing.T, path string) uint64 {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Zero(t, len(data)%8, "a record is cut in half")
	if len(data) == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(data[len(data)-8:])
}

// A write to one volume that began after a write to another was flushed is in
// its snapshot only if that other one is in the other's.
func TestGroupSnapshotKeepsTheOrderOfWritesAcrossVolumes(t *testing.T) {
	t.Parallel()
	c := backendCases()[0]
	dir := shortDir(t)
	d := start(t, emulator.Config{Backend: c.open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
	const members = 3
	var volumes []*volume
	var files []*os.File
	for i := range members {
		v := d.create(string(rune('a'+i)), mountCapability("ext4"), 16*mib)
		v.up()
		f, err := os.Create(filepath.Join(v.target, "numbers"))
		require.NoError(t, err)
		volumes, files = append(volumes, v), append(files, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last atomic.Uint64
	var writer sync.WaitGroup
	var failed error
	writer.Go(func() { failed = numberWrites(ctx, files, &last) })
	stop := func() {
		cancel()
		writer.Wait()
	}
	defer stop()
	require.Eventually(t, func() bool { return last.Load() > 2*members }, patience, tick)

	before := last.Load()
	g := d.group("g", volumes...)
	require.Eventually(t, func() bool { return last.Load() > before+members }, patience, tick, "writers go on")
	stop()
	require.NoError(t, failed)
	for i, f := range files {
		require.NoError(t, f.Close())
		volumes[i].down()
	}

	newest := map[string]uint64{}
	for _, s := range g.GetSnapshots() {
		r := d.create("of "+s.GetSourceVolumeId(), mountCapability("ext4"), 16*mib, fromSnapshot(s.GetSnapshotId()))
		r.up()
		newest[s.GetSourceVolumeId()] = newestNumber(t, filepath.Join(r.target, "numbers"))
		r.down()
		r.delete()
	}
	var least, most uint64
	for _, n := range newest {
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	require.Less(t, most-least, uint64(members), "newest numbers %v are not of one moment", newest)
	require.GreaterOrEqual(t, most, before, "what was flushed before the cut is in it")
	_, err := d.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: snapshotIDs(g)})
	require.NoError(t, err)
	for _, v := range volumes {
		v.delete()
	}
}

func TestGroupSnapshotOfPublishedRawBlockIsRefused(t *testing.T) {
	t.Parallel()
	c := backendCases()[0]
	dir := shortDir(t)
	d := start(t, emulator.Config{Backend: c.open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
	a, b := d.create("a", mountCapability("ext4"), 16*mib), d.create("b", blockCapability(), 16*mib)
	a.up()
	b.up()
	_, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: idsOf([]*volume{a, b})})
	wantCode(t, codes.FailedPrecondition, err)
	require.ErrorContains(t, err, "breakable", "it says what to do")
	require.Empty(t, d.snapshots())
	a.write(4096) // is not held any more
	d.snapshot("alone", b.id)

	b.unpublish()
	g := d.group("g", a, b)
	require.Len(t, g.GetSnapshots(), 2)
	b.unstage()
	b.detach()
	a.down()
}

// failing fails the n-th Snapshot.
type failing struct {
	backends.Backend
	left atomic.Int64
}

var errCut = errors.New("the cut fails")

func (f *failing) Snapshot(ctx context.Context, v backends.Volume, s backends.Snapshot) error {
	if f.left.Add(-1) == 0 {
		return errCut
	}
	return f.Backend.Snapshot(ctx, v, s)
}

func TestFailedGroupSnapshotLeavesNoMember(t *testing.T) {
	t.Parallel()
	f := &failing{Backend: memoryCase().open(t, "")}
	d := start(t, emulator.Config{Backend: f, Nodes: []emulator.Node{{Name: "node-1"}}})
	var volumes []*volume
	for i := range 3 {
		volumes = append(volumes, d.create(string(rune('a'+i)), mountCapability(""), mib))
	}
	f.left.Store(2)
	_, err := d.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: idsOf(volumes)})
	require.Error(t, err)
	require.Empty(t, d.snapshots())
	require.Len(t, d.group("g", volumes...).GetSnapshots(), 3, "the retry makes all of them")
}
